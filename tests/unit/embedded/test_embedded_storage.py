"""Volumes of pods: binding, volume phases, ephemeral volumes, attachments, node choice."""

from typing import Any

import pytest

from moxwell.embedded.controllermanager.storage import labels as storage_labels
from moxwell.embedded.controllermanager.storage.attachdetach import plan as attachdetach
from moxwell.embedded.controllermanager.storage.ephemeral import plan as ephemeral
from moxwell.embedded.controllermanager.storage.persistentvolume import plan as binding
from moxwell.embedded.controllermanager.storage.persistentvolume.plan import (
    Bind,
    ExternalProvisioning,
    ObservedClaim,
)
from moxwell.embedded.controllermanager.storage.plugin import ProvisionedVolume
from moxwell.embedded.controllermanager.storage.provisioner import request as provision_request
from moxwell.embedded.scheduler import node_choice, volumes
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Create, Delete, Writes

Json = dict[str, Any]
REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
DRIVER = "csi.moxwell.dev"


def claim(
    name: str = "data", *, volume: str = "", storage_class: str | None = "fast", **marks: str
) -> Json:
    spec: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    if volume:
        spec["volumeName"] = volume
    keys = {"done": storage_labels.BIND_COMPLETED, "node": storage_labels.SELECTED_NODE}
    meta = {"name": name, "namespace": "default", "uid": "u1", "resourceVersion": "5"}
    return {
        "metadata": meta | {"annotations": {keys[k]: v for k, v in marks.items()}},
        "spec": spec,
    }


def volume(
    name: str = "pv1", *, to: str = "", uid: str = "", storage_class: str = "fast", gi: int = 2
) -> Json:
    spec: Json = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": f"{gi}Gi"},
        "storageClassName": storage_class,
        "csi": {"driver": DRIVER, "volumeHandle": f"r1//ceph/{name}"},
    }
    if to:
        spec["claimRef"] = {"namespace": "default", "name": to, "uid": uid}
    return {
        "metadata": {"name": name, "resourceVersion": "7"},
        "spec": spec,
        "status": {"phase": "Available"},
    }


def storage_class(mode: str = "Immediate", **more: Any) -> Json:
    return {"metadata": {"name": "fast"}, "provisioner": DRIVER, "volumeBindingMode": mode, **more}


WAITS = storage_class("WaitForFirstConsumer")


@pytest.mark.parametrize(
    ("of", "there", "kind", "expected"),
    [
        pytest.param(
            claim(),
            [],
            storage_class(),
            ExternalProvisioning(DRIVER),
            id="no volume: a provisioner creates it",
        ),
        pytest.param(claim(), [], WAITS, "WaitForFirstConsumer", id="waits for its consumer"),
        pytest.param(
            claim(node="n1"), [], WAITS, ExternalProvisioning(DRIVER), id="a node was chosen"
        ),
        pytest.param(
            claim(), [volume(to="data", uid="u1")], WAITS, Bind("pv1"), id="created for it"
        ),
        pytest.param(claim(), [volume(to="data")], WAITS, Bind("pv1"), id="reserved by name"),
        pytest.param(
            claim(),
            [volume(to="data", uid="other")],
            storage_class(),
            ExternalProvisioning(DRIVER),
            id="reserved for an earlier claim",
        ),
        pytest.param(
            claim(volume="pv1"),
            [volume(to="data", uid="u1")],
            None,
            Bind("pv1"),
            id="named and reserved",
        ),
        pytest.param(
            claim(volume="pv1"),
            [volume(to="x", uid="x")],
            None,
            "FailedBinding",
            id="named and bound to another",
        ),
        pytest.param(
            claim(volume="pv1", done="yes"), [], None, "ClaimLost", id="its volume is gone"
        ),
        pytest.param(
            claim(volume="pv1"), [], None, "WaitingForVolume", id="its volume does not exist yet"
        ),
        pytest.param(
            claim(volume="pv1", done="yes"),
            [volume(to="data")],
            None,
            "ClaimMisbound",
            id="bound to a volume that is reserved by name only",
        ),
        pytest.param(
            claim(),
            [volume("big", gi=9), volume("fits", gi=3)],
            storage_class(),
            Bind("fits"),
            id="the smallest that fits",
        ),
        pytest.param(
            claim(),
            [volume("small", gi=1)],
            storage_class(),
            ExternalProvisioning(DRIVER),
            id="too small does not fit",
        ),
        pytest.param(claim(), [], None, "ProvisioningFailed", id="no such class"),
        pytest.param(claim(storage_class=None), [], None, "FailedBinding", id="no class at all"),
    ],
)
def test_decision_on_a_claim(of: Json, there: list[Json], kind: Json | None, expected: Any) -> None:
    decision = binding.decide(of, ObservedClaim(tuple(there), kind))
    assert (decision.reason if isinstance(decision, Wait) else decision) == expected


@pytest.mark.parametrize(
    ("of", "there", "expected", "status"),
    [
        pytest.param(claim(), [], "patch PersistentVolumeClaim data", None, id="annotated"),
        pytest.param(
            claim(),
            [volume()],
            "patch PersistentVolume pv1, patch PersistentVolumeClaim data",
            "Bound",
            id="the volume is reserved first",
        ),
        pytest.param(
            claim(),
            [volume(to="data", uid="u1")],
            "patch PersistentVolumeClaim data",
            "Bound",
            id="the volume is reserved already",
        ),
        pytest.param(
            claim(volume="pv1", done="yes"),
            [volume(to="data", uid="u1")],
            None,
            "Bound",
            id="both are bound",
        ),
        pytest.param(claim(volume="pv1", done="yes"), [], None, "Lost", id="the volume is gone"),
    ],
)
def test_next_move_of_a_claim(
    of: Json, there: list[Json], expected: str | None, status: str | None
) -> None:
    seen = ObservedClaim(tuple(there), storage_class())
    move = binding.next_move(of, seen)
    assert (str(move) if isinstance(move, Writes) else None) == expected
    described = binding.describe_claim(of, seen)
    assert (described["phase"] if described else None) == status


def test_the_capacity_of_a_claim_is_recorded_once() -> None:
    of, there = claim(volume="pv1", done="yes"), (volume(to="data", uid="u1"),)
    first = binding.describe_claim(of, ObservedClaim(there))
    later = binding.describe_claim(of, ObservedClaim(there, capacity_recorded=True))
    assert (first or {})["capacity"] == {"storage": "2Gi"}
    assert "capacity" not in (later or {"capacity": None})


@pytest.mark.parametrize(
    ("of", "found", "phase"),
    [
        pytest.param(volume(), None, "Available", id="no claimRef"),
        pytest.param(volume(to="data"), claim(), "Available", id="reserved by name"),
        pytest.param(volume(to="data", uid="u1"), claim(volume="pv1"), "Bound", id="bound"),
        pytest.param(volume(to="data", uid="u1"), None, "Released", id="the claim is gone"),
        pytest.param(
            volume(to="data", uid="u0"), claim(), "Released", id="a new claim of that name"
        ),
    ],
)
def test_phase_of_a_volume(of: Json, found: Json | None, phase: str) -> None:
    assert binding.volume_phase(of, found) == phase


def test_persistent_volume_of_a_provisioned_volume() -> None:
    kind = storage_class(
        parameters={
            "storage": "ceph",
            "csi.storage.k8s.io/fstype": "xfs",
            "csi.storage.k8s.io/node-stage-secret-name": "${pvc.name}-key",
            "csi.storage.k8s.io/node-stage-secret-namespace": "${pvc.namespace}",
        },
        reclaimPolicy="Retain",
    )
    built = provision_request.volume_request(claim(), kind, [{REGION: "r1"}])
    assert (built.size, built.fs_type, built.parameters["storage"]) == (2 << 30, "xfs", "ceph")
    assert built.parameters["csi.storage.k8s.io/pvc/name"] == "data"
    assert not any("secret" in key or "fstype" in key for key in built.parameters)
    created = ProvisionedVolume("r1//ceph/d", 2 << 30, {"storage": "ceph"}, ({REGION: "r1"},))
    spec = provision_request.persistent_volume(claim(), kind, built, created, DRIVER)["spec"]
    assert spec["csi"]["nodeStageSecretRef"] == {"name": "data-key", "namespace": "default"}
    assert spec["persistentVolumeReclaimPolicy"] == "Retain"
    terms = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [{"key": REGION, "operator": "In", "values": ["r1"]}]}]


def node(name: str, zone: str) -> Json:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    labels = {REGION: "r1", ZONE: zone}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"allocatable": allocatable},
    }


def capacity(zone: str, gi: int) -> Json:
    where = {"matchLabels": {REGION: "r1", ZONE: zone}}
    return {"storageClassName": "fast", "nodeTopology": where, "maximumVolumeSize": f"{gi}Gi"}


def csi_node(name: str, count: int) -> Json:
    row = {"name": DRIVER, "allocatable": {"count": count}}
    return {"metadata": {"name": name}, "spec": {"drivers": [row]}}


def in_zone(zone: str) -> Json:
    built = volume(to="data", uid="u1")
    built["spec"]["nodeAffinity"] = provision_request.affinity([{REGION: "r1", ZONE: zone}])
    return built


def available_volume(name: str, zone: str, to: str = "") -> Json:
    """An available volume that one zone can access."""
    built = volume(name, to=to, uid="u1" if to else "")
    built["spec"]["nodeAffinity"] = provision_request.affinity([{REGION: "r1", ZONE: zone}])
    return built


POD: Json = {
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {
        "containers": [{"name": "c"}],
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
    },
}
WAITING = volumes.UnboundClaim(claim(), WAITS)
BARE = volumes.UnboundClaim(claim(), WAITS | {"provisioner": binding.NO_PROVISIONER})


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        pytest.param(volumes.VolumeConstraints(), "n1", id="no volumes: any node"),
        pytest.param(
            volumes.VolumeConstraints(bound=(in_zone("z2"),)), "n2", id="the zone of its volume"
        ),
        pytest.param(
            volumes.VolumeConstraints(bound=(in_zone("z9"),)),
            volumes.AFFINITY_CONFLICT,
            id="no node can access its volume",
        ),
        pytest.param(
            volumes.VolumeConstraints(
                waiting=(WAITING,), capacities=(capacity("z1", 1), capacity("z2", 5))
            ),
            "n2",
            id="where there is capacity",
        ),
        pytest.param(
            volumes.VolumeConstraints(waiting=(WAITING,)),
            volumes.NO_CAPACITY,
            id="no capacity anywhere",
        ),
        pytest.param(
            volumes.VolumeConstraints(
                waiting=(WAITING,), available=(available_volume("pv1", "z2"),)
            ),
            "n2",
            id="where an available volume fits",
        ),
        pytest.param(
            volumes.VolumeConstraints(
                waiting=(WAITING,),
                available=(available_volume("pv1", "z2"),),
                capacities=(capacity("z1", 5),),
            ),
            "n1",
            id="or where there is capacity for a new one",
        ),
        pytest.param(
            volumes.VolumeConstraints(waiting=(BARE,), capacities=(capacity("z1", 5),)),
            volumes.NO_VOLUME,
            id="no provisioner and no available volume",
        ),
        pytest.param(
            volumes.VolumeConstraints(waiting=(BARE,), available=(available_volume("pv1", "z2"),)),
            "n2",
            id="no provisioner, but an available volume",
        ),
        pytest.param(
            volumes.VolumeConstraints(
                waiting=(BARE,), available=(available_volume("pv1", "z2", "data"),)
            ),
            "n2",
            id="a volume that is reserved for the claim",
        ),
        pytest.param(
            volumes.VolumeConstraints(
                waiting=(volumes.UnboundClaim(claim(node="n1"), WAITS),),
                available=(available_volume("pv1", "z2"),),
                capacities=(capacity("z1", 5),),
            ),
            "n1",
            id="a volume that is being provisioned is waited for",
        ),
        pytest.param(
            volumes.VolumeConstraints(
                bound=(volume(to="data"),),
                csi_nodes={"n1": csi_node("n1", 1), "n2": csi_node("n2", 9)},
                used={"n1": frozenset({"default/other"})},
            ),
            "n2",
            id="a node at its volume limit is skipped",
        ),
        pytest.param(
            volumes.VolumeConstraints(
                bound=(volume(to="data"),),
                csi_nodes={"n1": csi_node("n1", 1)},
                used={"n1": frozenset({"default/data"})},
            ),
            "n1",
            id="a volume that is in use on the node counts once",
        ),
        pytest.param(
            volumes.VolumeConstraints(
                waiting=(
                    volumes.UnboundClaim(
                        claim(),
                        storage_class(
                            allowedTopologies=[
                                {"matchLabelExpressions": [{"key": ZONE, "values": ["z2"]}]}
                            ]
                        ),
                    ),
                ),
                capacities=(capacity("z1", 5), capacity("z2", 5)),
            ),
            "n2",
            id="only in allowed topologies",
        ),
    ],
)
def test_node_of_a_pod_with_volumes(needs: volumes.VolumeConstraints, expected: str) -> None:
    choice = node_choice.choose_node(POD, [node("n1", "z1"), node("n2", "z2")], [], needs.obstacle)
    assert choice.node == expected or expected in choice.why


def test_attachment_names_are_those_of_the_kubelet() -> None:
    name = storage_labels.attachment_name(DRIVER, "r1//ceph/d", "n1")
    assert name.startswith("csi-")
    assert len(name) == 68


@pytest.mark.parametrize(
    ("phase", "place", "wanted"),
    [
        pytest.param("Running", "n1", True, id="runs"),
        pytest.param("Pending", "", False, id="not scheduled"),
        pytest.param("Succeeded", "n1", False, id="finished"),
    ],
)
def test_which_pods_need_attachments(phase: str, place: str, wanted: bool) -> None:
    pod = {**POD, "spec": {**POD["spec"], "nodeName": place}, "status": {"phase": phase}}
    assert attachdetach.needs_volumes(pod) is wanted


@pytest.mark.parametrize(
    ("size", "text"), [(10 << 30, "10Gi"), (512 << 20, "512Mi"), (1500, "1500")]
)
def test_quantities(size: int, text: str) -> None:
    assert storage_labels.quantity(size) == text
    assert storage_labels.storage_size({"storage": text}) == size


def ephemeral_pod(name: str = "web", uid: str = "u1", **template: Any) -> Json:
    """A pod with an ephemeral volume and a claim."""
    built = {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}, **template}}
    volumes = [
        {"name": "scratch", "ephemeral": built},
        {"name": "conf", "configMap": {"name": "c"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "kept"}},
    ]
    meta = {"name": name, "namespace": "default", "uid": uid}
    return {"metadata": meta, "spec": {"volumes": volumes}}


def test_claims_of_a_pod() -> None:
    assert storage_labels.claims_of(ephemeral_pod()) == ["web-scratch", "kept"]


def test_claim_of_an_ephemeral_volume() -> None:
    pod = ephemeral_pod(metadata={"labels": {"a": "b"}, "finalizers": ["no"]})
    built = ephemeral.new_claim(pod, storage_labels.ephemeral_volumes(pod)[0])
    meta = built["metadata"]
    assert (meta["name"], meta["namespace"], meta["labels"]) == (
        "web-scratch",
        "default",
        {"a": "b"},
    )
    assert "finalizers" not in meta
    assert built["spec"] == {"accessModes": ["ReadWriteOnce"]}
    assert storage_labels.ownership_error(pod, built) == ""


@pytest.mark.parametrize(
    ("pod", "named", "owner", "why"),
    [
        pytest.param(ephemeral_pod(), "web-scratch", "u1", "", id="the pod's own"),
        pytest.param(
            ephemeral_pod(), "kept", "", "", id="a claim that is not of an ephemeral volume"
        ),
        pytest.param(ephemeral_pod(), "web-scratch", "", "pod is not owner", id="no claimRef"),
        pytest.param(
            ephemeral_pod(), "web-scratch", "u0", "pod is not owner", id="of an earlier pod"
        ),
    ],
)
def test_an_ephemeral_volume_uses_only_the_pods_own_claim(
    pod: Json, named: str, owner: str, why: str
) -> None:
    owners = [{"kind": "Pod", "name": "web", "uid": owner, "controller": True}] if owner else []
    meta = {"name": named, "namespace": "default", "ownerReferences": owners}
    found = storage_labels.ownership_error(pod, {"metadata": meta})
    assert (why in found) if why else not found


@pytest.mark.parametrize(
    ("change", "has"),
    [
        pytest.param({}, True, id="active"),
        pytest.param({"status": {"phase": "Succeeded"}}, False, id="finished"),
        pytest.param({"spec": {"volumes": []}}, False, id="no ephemeral volume"),
    ],
)
def test_which_pods_have_ephemeral_volumes(change: Json, has: bool) -> None:
    assert ephemeral.has_ephemeral_volumes(ephemeral_pod() | change) is has


def test_each_claim_of_a_pod_gets_a_volume_of_its_own() -> None:
    waiting = tuple(volumes.UnboundClaim(claim(name), WAITS) for name in ("one", "two", "three"))
    needs = volumes.VolumeConstraints(
        waiting=waiting, available=(available_volume("pv1", "z1"), available_volume("pv2", "z1"))
    )
    found = needs.assignments(node("n1", "z1"))
    assert sorted(found.values()) == ["pv1", "pv2"]
    assert needs.assignments(node("n2", "z2")) == {}


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        pytest.param({}, True, id="none"),
        pytest.param({"matchLabels": {"disk": "old"}}, True, id="by label"),
        pytest.param({"matchLabels": {"disk": "new"}}, False, id="by another label"),
        pytest.param(
            {"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["old"]}]},
            False,
            id="by an expression",
        ),
    ],
)
def test_a_claim_chooses_among_volumes_by_its_selector(selector: Json, fits: bool) -> None:
    there, wants = volume(), claim()
    there["metadata"]["labels"] = {"disk": "old"}
    wants["spec"]["selector"] = selector
    assert binding.choose_static(wants, [there]) == ("pv1" if fits else "")


# The ephemeral volume controller


@pytest.mark.parametrize(
    ("claims", "expected", "problems"),
    [
        pytest.param({}, Writes, 0, id="the claim is created"),
        pytest.param({"web-scratch": "u1"}, Done, 0, id="it exists"),
        pytest.param({"web-scratch": "other"}, Wait, 1, id="another owner's claim"),
    ],
)
def test_next_move_of_a_pod_with_ephemeral_volumes(
    claims: dict[str, str], expected: type, problems: int
) -> None:
    found: dict[str, Json | None] = {}
    for name, uid in claims.items():
        owner = {"kind": "Pod", "name": "web", "uid": uid, "controller": True}
        meta = {"name": name, "namespace": "default", "ownerReferences": [owner]}
        found[name] = {"metadata": meta}
    assert isinstance(ephemeral.next_move(ephemeral_pod(), found), expected)
    assert len(ephemeral.problems(ephemeral_pod(), found)) == problems


# The attach-detach controller

ON_N1: Json = {
    "metadata": {"name": "p", "namespace": "default", "uid": "pod"},
    "spec": {**POD["spec"], "nodeName": "n1"},
}


def attachment(node_name: str = "n1", **status: Any) -> Json:
    return attachdetach.new_attachment(volume(), node_name) | {"status": status}


def error(message: str) -> Json:
    return {"attachError": {"message": message}}


@pytest.mark.parametrize(
    ("seen", "expected", "reasons"),
    [
        pytest.param(
            attachdetach.ObservedPodVolumes((volume(),)), Create, [], id="the attachment is created"
        ),
        pytest.param(
            attachdetach.ObservedPodVolumes((volume(),), (attachment(),)), Wait, [], id="waits"
        ),
        pytest.param(
            attachdetach.ObservedPodVolumes((volume(),), (attachment("n2", attached=True),)),
            Wait,
            ["FailedAttachVolume"],
            id="attached to another node",
        ),
        pytest.param(
            attachdetach.ObservedPodVolumes((volume(),), (attachment(**error("no")),)),
            Wait,
            ["FailedAttachVolume"],
            id="the driver failed",
        ),
        pytest.param(
            attachdetach.ObservedPodVolumes((volume(),), (attachment(attached=True),)),
            attachdetach.AnnounceAttached,
            ["SuccessfulAttachVolume"],
            id="attached: reported",
        ),
        pytest.param(
            attachdetach.ObservedPodVolumes(
                (volume(),), (attachment(attached=True),), announced=frozenset({"pv1"})
            ),
            Done,
            [],
            id="reported once",
        ),
        pytest.param(attachdetach.ObservedPodVolumes(unbound=1), Wait, [], id="an unbound claim"),
    ],
)
def test_next_move_of_a_pod_with_volumes(
    seen: attachdetach.ObservedPodVolumes, expected: type, reasons: list[str]
) -> None:
    move = attachdetach.next_move(ON_N1, seen)
    done = move.writes[0] if isinstance(move, Writes) else move
    assert isinstance(done, expected)
    assert [n.reason for n in attachdetach.events(ON_N1, seen, move)] == reasons


OUT = {"key": attachdetach.OUT_OF_SERVICE}


@pytest.mark.parametrize(
    ("seen", "detached"),
    [
        pytest.param(
            attachdetach.ObservedAttachment("data", True, (ON_N1,)), False, id="a pod needs it"
        ),
        pytest.param(attachdetach.ObservedAttachment("data", True), True, id="no pod needs it"),
        pytest.param(
            attachdetach.ObservedAttachment("data", False, (ON_N1,)),
            True,
            id="the node is out of service",
        ),
        pytest.param(attachdetach.ObservedAttachment(), True, id="the volume is gone"),
    ],
)
def test_which_attachments_are_deleted(
    seen: attachdetach.ObservedAttachment, detached: bool
) -> None:
    move = attachdetach.next_detach(attachment(), seen)
    assert (isinstance(move, Writes) and isinstance(move.writes[0], Delete)) is detached


@pytest.mark.parametrize(
    ("found", "works"),
    [
        pytest.param({"spec": {}}, True, id="exists"),
        pytest.param({"spec": {"taints": [OUT]}}, False, id="tainted"),
        pytest.param(None, False, id="gone"),
    ],
)
def test_nodes_in_service(found: Json | None, works: bool) -> None:
    assert attachdetach.is_in_service(found) is works
