"""Volumes in small: what becomes of claims, which nodes will do, what a PersistentVolume says."""

from typing import Any

import pytest

from moxwell.embedded.controllermanager.storage import (
    attachdetach,
    binding,
    ephemeral,
    provision_request,
)
from moxwell.embedded.controllermanager.storage import labels as storage_labels
from moxwell.embedded.controllermanager.storage.binding import Ask, Bind, Wait
from moxwell.embedded.controllermanager.storage.plugin import Stored
from moxwell.embedded.scheduler import plan, volumes

Json = dict[str, Any]
REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
DRIVER = "csi.moxwell.dev"


def claim(
    name: str = "data", *, volume: str = "", klass: str | None = "fast", **marks: str
) -> Json:
    spec: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    if klass is not None:
        spec["storageClassName"] = klass
    if volume:
        spec["volumeName"] = volume
    keys = {"done": storage_labels.COMPLETED, "node": storage_labels.SELECTED}
    meta = {"name": name, "namespace": "default", "uid": "u1", "resourceVersion": "5"}
    return {
        "metadata": meta | {"annotations": {keys[k]: v for k, v in marks.items()}},
        "spec": spec,
    }


def volume(
    name: str = "pv1", *, to: str = "", uid: str = "", klass: str = "fast", gi: int = 2
) -> Json:
    spec: Json = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": f"{gi}Gi"},
        "storageClassName": klass,
        "csi": {"driver": DRIVER, "volumeHandle": f"r1//ceph/{name}"},
    }
    if to:
        spec["claimRef"] = {"namespace": "default", "name": to, "uid": uid}
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}


def klass(mode: str = "Immediate", **more: Any) -> Json:
    return {"metadata": {"name": "fast"}, "provisioner": DRIVER, "volumeBindingMode": mode, **more}


WAITS = klass("WaitForFirstConsumer")


@pytest.mark.parametrize(
    ("of", "there", "kind", "expected"),
    [
        pytest.param(claim(), [], klass(), Ask(DRIVER), id="nothing there: a provisioner is asked"),
        pytest.param(claim(), [], WAITS, "WaitForFirstConsumer", id="waits for its consumer"),
        pytest.param(claim(node="n1"), [], WAITS, Ask(DRIVER), id="a node was chosen"),
        pytest.param(claim(), [volume(to="data", uid="u1")], WAITS, Bind("pv1"), id="made for it"),
        pytest.param(claim(), [volume(to="data")], WAITS, Bind("pv1"), id="kept for its name"),
        pytest.param(
            claim(),
            [volume(to="data", uid="other")],
            klass(),
            Ask(DRIVER),
            id="of one that was before",
        ),
        pytest.param(
            claim(volume="pv1"),
            [volume(to="data", uid="u1")],
            None,
            Bind("pv1"),
            id="named and for it",
        ),
        pytest.param(
            claim(volume="pv1"),
            [volume(to="x", uid="x")],
            None,
            "FailedBinding",
            id="named and another's",
        ),
        pytest.param(
            claim(volume="pv1", done="yes"), [], None, "ClaimLost", id="its volume is gone"
        ),
        pytest.param(claim(volume="pv1"), [], None, None, id="its volume is not there yet"),
        pytest.param(
            claim(volume="pv1", done="yes"),
            [volume(to="data")],
            None,
            "ClaimMisbound",
            id="said to be bound to what is only kept for its name",
        ),
        pytest.param(
            claim(),
            [volume("big", gi=9), volume("fits", gi=3)],
            klass(),
            Bind("fits"),
            id="the smallest that fits",
        ),
        pytest.param(
            claim(), [volume("small", gi=1)], klass(), Ask(DRIVER), id="too small does not fit"
        ),
        pytest.param(claim(), [], None, "ProvisioningFailed", id="no such class"),
        pytest.param(claim(klass=None), [], None, "FailedBinding", id="no class at all"),
    ],
)
def test_what_a_claim_needs(of: Json, there: list[Json], kind: Json | None, expected: Any) -> None:
    move = binding.next_move(of, there, kind)
    if isinstance(move, Wait):
        assert (move.note.reason if move.note else None) == expected
    else:
        assert move == expected


@pytest.mark.parametrize(
    ("of", "its_claim", "phase"),
    [
        pytest.param(volume(), None, "Available", id="nobody's"),
        pytest.param(volume(to="data"), claim(), "Available", id="kept for a name, not taken yet"),
        pytest.param(volume(to="data", uid="u1"), claim(volume="pv1"), "Bound", id="both agree"),
        pytest.param(volume(to="data", uid="u1"), None, "Released", id="the claim is gone"),
        pytest.param(
            volume(to="data", uid="u0"), claim(), "Released", id="a new claim of that name"
        ),
    ],
)
def test_phase_of_a_volume(of: Json, its_claim: Json | None, phase: str) -> None:
    assert binding.phase_of(of, its_claim) == phase


def test_a_volume_says_what_the_driver_stored() -> None:
    kind = klass(
        parameters={
            "storage": "ceph",
            "csi.storage.k8s.io/fstype": "xfs",
            "csi.storage.k8s.io/node-stage-secret-name": "${pvc.name}-key",
            "csi.storage.k8s.io/node-stage-secret-namespace": "${pvc.namespace}",
        },
        reclaimPolicy="Retain",
    )
    order = provision_request.order(claim(), kind, [{REGION: "r1"}])
    assert (order.size, order.fs_type, order.parameters["storage"]) == (2 << 30, "xfs", "ceph")
    assert order.parameters["csi.storage.k8s.io/pvc/name"] == "data"
    assert not any("secret" in key or "fstype" in key for key in order.parameters)
    stored = Stored("r1//ceph/d", 2 << 30, {"storage": "ceph"}, ({REGION: "r1"},))
    spec = provision_request.volume(claim(), kind, order, stored, DRIVER)["spec"]
    assert spec["csi"]["nodeStageSecretRef"] == {"name": "data-key", "namespace": "default"}
    assert spec["persistentVolumeReclaimPolicy"] == "Retain"
    terms = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [{"key": REGION, "operator": "In", "values": ["r1"]}]}]


def node(name: str, zone: str) -> Json:
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    labels = {REGION: "r1", ZONE: zone}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"allocatable": room},
    }


def room(zone: str, gi: int) -> Json:
    where = {"matchLabels": {REGION: "r1", ZONE: zone}}
    return {"storageClassName": "fast", "nodeTopology": where, "maximumVolumeSize": f"{gi}Gi"}


def full(name: str, count: int) -> Json:
    row = {"name": DRIVER, "allocatable": {"count": count}}
    return {"metadata": {"name": name}, "spec": {"drivers": [row]}}


def in_zone(zone: str) -> Json:
    made = volume(to="data", uid="u1")
    made["spec"]["nodeAffinity"] = provision_request.affinity([{REGION: "r1", ZONE: zone}])
    return made


def near(name: str, zone: str, to: str = "") -> Json:
    """A volume that is there, and can be reached from one zone."""
    made = volume(name, to=to, uid="u1" if to else "")
    made["spec"]["nodeAffinity"] = provision_request.affinity([{REGION: "r1", ZONE: zone}])
    return made


POD: Json = {
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {
        "containers": [{"name": "c"}],
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
    },
}
WAITING = volumes.Waiting(claim(), WAITS)
BARE = volumes.Waiting(claim(), WAITS | {"provisioner": binding.NO_PROVISIONER})


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        pytest.param(volumes.Needs(), "n1", id="no volumes: any node"),
        pytest.param(volumes.Needs(bound=(in_zone("z2"),)), "n2", id="goes where its volume is"),
        pytest.param(
            volumes.Needs(bound=(in_zone("z9"),)), volumes.CONFLICT, id="its volume is nowhere near"
        ),
        pytest.param(
            volumes.Needs(waiting=(WAITING,), rooms=(room("z1", 1), room("z2", 5))),
            "n2",
            id="where there is room",
        ),
        pytest.param(volumes.Needs(waiting=(WAITING,)), volumes.NO_ROOM, id="no room anywhere"),
        pytest.param(
            volumes.Needs(waiting=(WAITING,), there=(near("pv1", "z2"),)),
            "n2",
            id="where a volume is that fits",
        ),
        pytest.param(
            volumes.Needs(waiting=(WAITING,), there=(near("pv1", "z2"),), rooms=(room("z1", 5),)),
            "n1",
            id="or where there is room for a new one",
        ),
        pytest.param(
            volumes.Needs(waiting=(BARE,), rooms=(room("z1", 5),)),
            volumes.NOT_THERE,
            id="nobody makes volumes of the class, and none is there",
        ),
        pytest.param(
            volumes.Needs(waiting=(BARE,), there=(near("pv1", "z2"),)),
            "n2",
            id="nobody makes volumes of the class, and one is there",
        ),
        pytest.param(
            volumes.Needs(waiting=(BARE,), there=(near("pv1", "z2", "data"),)),
            "n2",
            id="a volume that is meant for the claim",
        ),
        pytest.param(
            volumes.Needs(
                waiting=(volumes.Waiting(claim(node="n1"), WAITS),),
                there=(near("pv1", "z2"),),
                rooms=(room("z1", 5),),
            ),
            "n1",
            id="a volume that is being made is waited for",
        ),
        pytest.param(
            volumes.Needs(
                bound=(volume(to="data"),),
                csi_nodes={"n1": full("n1", 1), "n2": full("n2", 9)},
                used={"n1": frozenset({"default/other"})},
            ),
            "n2",
            id="a full node is passed over",
        ),
        pytest.param(
            volumes.Needs(
                bound=(volume(to="data"),),
                csi_nodes={"n1": full("n1", 1)},
                used={"n1": frozenset({"default/data"})},
            ),
            "n1",
            id="a volume that is there already takes no second place",
        ),
        pytest.param(
            volumes.Needs(
                waiting=(
                    volumes.Waiting(
                        claim(),
                        klass(
                            allowedTopologies=[
                                {"matchLabelExpressions": [{"key": ZONE, "values": ["z2"]}]}
                            ]
                        ),
                    ),
                ),
                rooms=(room("z1", 5), room("z2", 5)),
            ),
            "n2",
            id="only where the class allows",
        ),
    ],
)
def test_where_a_pod_with_volumes_goes(needs: volumes.Needs, expected: str) -> None:
    choice = plan.choose_node(POD, [node("n1", "z1"), node("n2", "z2")], [], needs.obstacle)
    assert choice.node == expected or expected in choice.why


def test_attachments_are_named_as_kubelet_names_them() -> None:
    name = storage_labels.attachment_name(DRIVER, "r1//ceph/d", "n1")
    assert name.startswith("csi-")
    assert len(name) == 68


@pytest.mark.parametrize(
    ("phase", "place", "wanted"),
    [
        pytest.param("Running", "n1", True, id="runs"),
        pytest.param("Pending", "", False, id="sits nowhere"),
        pytest.param("Succeeded", "n1", False, id="is over"),
    ],
)
def test_whose_volumes_are_attached(phase: str, place: str, wanted: bool) -> None:
    pod = {**POD, "spec": {**POD["spec"], "nodeName": place}, "status": {"phase": phase}}
    assert attachdetach.wants(pod) is wanted


@pytest.mark.parametrize(
    ("size", "text"), [(10 << 30, "10Gi"), (512 << 20, "512Mi"), (1500, "1500")]
)
def test_sizes_as_people_write_them(size: int, text: str) -> None:
    assert storage_labels.quantity(size) == text
    assert storage_labels.size({"storage": text}) == size


def bringing(name: str = "web", uid: str = "u1", **template: Any) -> Json:
    """A pod that brings one claim with it and names another."""
    made = {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}, **template}}
    volumes = [
        {"name": "scratch", "ephemeral": made},
        {"name": "conf", "configMap": {"name": "c"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "kept"}},
    ]
    meta = {"name": name, "namespace": "default", "uid": uid}
    return {"metadata": meta, "spec": {"volumes": volumes}}


def test_a_pod_has_the_claims_it_names_and_those_it_brings() -> None:
    assert storage_labels.claims_of(bringing()) == ["web-scratch", "kept"]


def test_a_claim_that_a_pod_brings_is_its_own_and_as_the_template_says() -> None:
    pod = bringing(metadata={"labels": {"a": "b"}, "finalizers": ["no"]})
    made = ephemeral.claim(pod, storage_labels.brought(pod)[0])
    meta = made["metadata"]
    assert (meta["name"], meta["namespace"], meta["labels"]) == (
        "web-scratch",
        "default",
        {"a": "b"},
    )
    assert "finalizers" not in meta
    assert made["spec"] == {"accessModes": ["ReadWriteOnce"]}
    assert storage_labels.misowned(pod, made) == ""


@pytest.mark.parametrize(
    ("pod", "named", "owner", "why"),
    [
        pytest.param(bringing(), "web-scratch", "u1", "", id="the pod's own"),
        pytest.param(bringing(), "kept", "", "", id="one that the pod only names"),
        pytest.param(bringing(), "web-scratch", "", "pod is not owner", id="nobody's"),
        pytest.param(bringing(), "web-scratch", "u0", "pod is not owner", id="of one before it"),
    ],
)
def test_a_claim_of_the_same_name_that_is_not_the_pods_own(
    pod: Json, named: str, owner: str, why: str
) -> None:
    owners = [{"kind": "Pod", "name": "web", "uid": owner, "controller": True}] if owner else []
    meta = {"name": named, "namespace": "default", "ownerReferences": owners}
    found = storage_labels.misowned(pod, {"metadata": meta})
    assert (why in found) if why else not found


@pytest.mark.parametrize(
    ("change", "makes"),
    [
        pytest.param({}, True, id="alive"),
        pytest.param({"status": {"phase": "Succeeded"}}, False, id="over"),
        pytest.param({"spec": {"volumes": []}}, False, id="brings nothing"),
    ],
)
def test_whose_claims_are_made(change: Json, makes: bool) -> None:
    assert ephemeral.concerns(bringing() | change) is makes


def test_two_claims_of_a_pod_get_two_volumes() -> None:
    waiting = tuple(volumes.Waiting(claim(name), WAITS) for name in ("one", "two", "three"))
    needs = volumes.Needs(waiting=waiting, there=(near("pv1", "z1"), near("pv2", "z1")))
    found = needs.ready(node("n1", "z1"))
    assert sorted(found.values()) == ["pv1", "pv2"]
    assert needs.ready(node("n2", "z2")) == {}


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
