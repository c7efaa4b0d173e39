"""The next move of a bootstrap from what both APIs have, and the order of a move."""

from typing import Any

import pytest

from moxwell.api.kinds import Resource
from moxwell.management import plan, transfer
from moxwell.management.manifests import ManifestStage, is_available
from moxwell.management.objects import MOVED, SECRETS
from moxwell.management.observed import ObservedManagement, ObservedTarget
from moxwell.management.progress import sentence
from moxwell.management.transfer import MOVING
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.unstructured import Unstructured
from moxwell.testing.bootstrap_environment import SPEC, with_fields

ONE = with_fields(SPEC, replicas=1)
KINDS: dict[str, Resource] = {r.kind: r for r in MOVED}
READY = [{"type": "Ready", "status": "True"}]
PAUSED = [*READY, {"type": "Paused", "status": "True"}]


def found(kind: str, name: str = "management", **parts: Any) -> Unstructured:
    meta = {"name": name, "namespace": "default", "uid": f"{kind}-{name}"} | parts.pop("meta", {})
    return Unstructured(KINDS[kind], {"metadata": meta, "spec": {}, **parts})


CONTROL_PLANE = {"labels": {"cluster.x-k8s.io/control-plane": ""}}
CLUSTER = found("Cluster")
MOVING_CLUSTER = found("Cluster", meta={"annotations": {MOVING: ""}})
DELETING = found("Cluster", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
MACHINE = found("Machine", "m", meta=CONTROL_PLANE)
GUEST = found("ProxmoxMachine", "m", status={"conditions": READY})
BUSY = found("ProxmoxMachine", "m", status={"conditions": READY, "nextMove": "Configure"})
STILL = found("ProxmoxMachine", "m", status={"conditions": PAUSED})
MADE = (CLUSTER, MACHINE, GUEST)
STAGE = ManifestStage("cni", ())
SECRET = {"data": {"value": ""}}


def seen(*objects: Unstructured, **rest: Any) -> ObservedManagement:
    return ObservedManagement(objects=objects, **rest)


def target(*objects: Unstructured, nodes: int = 1, **rest: Any) -> ObservedTarget:
    return ObservedTarget(objects=objects, nodes=nodes, **rest)


MISSING = ((SECRETS, {"metadata": {"name": "x"}}),)
FORWARD = [
    pytest.param(seen(missing=MISSING), plan.CreateClusterObjects, id="nothing exists"),
    pytest.param(seen(CLUSTER), "WaitingForControlPlane", id="no API yet"),
    pytest.param(
        seen(*MADE, target=target(), kubeconfig=SECRET), plan.KeepKubeconfig, id="the API answers"
    ),
    pytest.param(
        seen(*MADE, target=target(stage=STAGE), recorded=True), plan.InstallStage, id="a stage"
    ),
    pytest.param(
        seen(CLUSTER, target=target(), recorded=True), "WaitingForMachines", id="too few machines"
    ),
    pytest.param(
        seen(CLUSTER, MACHINE, BUSY, target=target(), recorded=True),
        "WaitingForMachines",
        id="a machine is being changed",
    ),
    pytest.param(
        seen(*MADE, target=target(nodes=0), recorded=True), "WaitingForNodes", id="no node is ready"
    ),
    pytest.param(
        seen(*MADE, target=target(waiting="x"), recorded=True),
        "WaitingForComponents",
        id="a Deployment is not available",
    ),
    pytest.param(seen(*MADE, target=target(), recorded=True), plan.PatchSource, id="all ready"),
    pytest.param(
        seen(MOVING_CLUSTER, GUEST, target=target(), recorded=True),
        "WaitingForPause",
        id="not paused",
    ),
    pytest.param(
        seen(MOVING_CLUSTER, STILL, target=target(), recorded=True), plan.MoveForward, id="paused"
    ),
    pytest.param(
        seen(MOVING_CLUSTER, STILL, target=target(MOVING_CLUSTER, STILL), recorded=True),
        plan.DeleteMoved,
        id="all objects are there",
    ),
    pytest.param(
        seen(MOVING_CLUSTER, STILL, recorded=True), "WaitingForManagementCluster", id="it is silent"
    ),
    pytest.param(
        seen(recorded=True, target=target(MOVING_CLUSTER), missing=MISSING),
        plan.PatchTarget,
        id="deleted here",
    ),
    pytest.param(seen(recorded=True, missing=MISSING), "WaitingForManagementCluster", id="silent"),
    pytest.param(
        seen(recorded=True, target=target(CLUSTER), missing=MISSING), Done, id="it manages itself"
    ),
]
BACK = [
    pytest.param(seen(missing=MISSING), Done, id="nothing was made"),
    pytest.param(seen(GUEST), "WaitingForDeletion", id="a machine without Cluster is deleted"),
    pytest.param(seen(found("Secret", "x")), plan.DeleteMoved, id="rests without Cluster"),
    pytest.param(seen(*MADE), plan.DeleteCluster, id="not moved"),
    pytest.param(seen(DELETING, GUEST), "WaitingForDeletion", id="being deleted"),
    pytest.param(seen(*MADE, recorded=True), plan.ForgetKubeconfig, id="installed, not moved"),
    pytest.param(seen(recorded=True), "WaitingForManagementCluster", id="moved, silent"),
    pytest.param(
        seen(recorded=True, target=target(CLUSTER, others=("Cluster a/b",))),
        "ManagementClusterInUse",
        id="it has other clusters",
    ),
    pytest.param(
        seen(recorded=True, target=target(CLUSTER)), plan.PatchTarget, id="moved: pause there first"
    ),
    pytest.param(
        seen(recorded=True, target=target(MOVING_CLUSTER, GUEST)), plan.MoveBack, id="paused there"
    ),
    pytest.param(
        seen(MOVING_CLUSTER, STILL, recorded=True, target=target(MOVING_CLUSTER, STILL)),
        plan.ForgetKubeconfig,
        id="all objects are here again",
    ),
    pytest.param(seen(MOVING_CLUSTER, STILL), plan.PatchSource, id="end the pause"),
]


def check(move: Any, expected: Any) -> None:
    if isinstance(expected, str):
        assert isinstance(move, Wait)
        assert move.reason == expected
    else:
        assert isinstance(move, expected)
    assert sentence(move)


@pytest.mark.parametrize("world, expected", FORWARD)
def test_the_next_move_towards_a_management_cluster(
    world: ObservedManagement, expected: Any
) -> None:
    check(plan.next_move(ONE, world, undo=False), expected)


@pytest.mark.parametrize("world, expected", BACK)
def test_the_next_move_back(world: ObservedManagement, expected: Any) -> None:
    check(plan.next_move(ONE, world, undo=True), expected)


def owned(kind: str, name: str, owner: Unstructured) -> Unstructured:
    return found(kind, name, meta={"ownerReferences": [{"uid": owner.uid, "name": owner.name}]})


def test_what_the_cluster_owns_or_names_is_moved_owners_first() -> None:
    machine = owned("Machine", "m", CLUSTER)
    guest = owned("ProxmoxMachine", "m", machine)
    labelled = found(
        "Secret", "s", meta={"labels": {"cluster.x-k8s.io/cluster-name": "management"}}
    )
    others = [
        found("Cluster", "b"),
        found("Secret", "t"),
        owned("Machine", "o", found("Cluster", "b")),
    ]
    chosen = transfer.parts_of([guest, *others, labelled, machine, CLUSTER], "management")
    names = [o.identity for o in transfer.ordered(chosen)]
    assert names[0] == ("Cluster", "management")
    assert set(names) == {CLUSTER.identity, machine.identity, guest.identity, labelled.identity}
    assert names.index(machine.identity) < names.index(guest.identity)


def test_owners_that_own_each_other_end() -> None:
    one = found("Secret", "a", meta={"ownerReferences": [{"uid": "Secret-b"}]})
    other = found("Secret", "b", meta={"ownerReferences": [{"uid": "Secret-a"}]})
    assert len(transfer.ordered([one, other])) == 2


def test_a_moved_object_has_the_owners_of_the_target_and_no_status() -> None:
    meta = {
        "resourceVersion": "7",
        "finalizers": ["f"],
        "annotations": {"a": "1", transfer.LAST_APPLIED: "{}"},
        "ownerReferences": [{"uid": "old", "name": "x"}, {"uid": "elsewhere", "name": "y"}],
    }
    made = transfer.prepared(
        found("ProxmoxMachine", "m", meta=meta, status={"x": 1}), {"old": "new"}
    )
    assert made["metadata"] == {
        "name": "m",
        "namespace": "default",
        "annotations": {"a": "1"},
        "finalizers": ["f"],
        "ownerReferences": [{"uid": "new", "name": "x"}],
    }
    assert "status" not in made


def test_the_cluster_is_created_paused() -> None:
    made = transfer.prepared(CLUSTER, {})
    assert made["spec"] == {"paused": True}
    assert MOVING in made["metadata"]["annotations"]


@pytest.mark.parametrize(
    "deployment, expected",
    [
        (None, False),
        ({"spec": {}, "status": {}}, False),
        ({"spec": {}, "status": {"availableReplicas": 1}}, True),
        ({"spec": {"replicas": 0}}, True),
    ],
)
def test_a_deployment_is_available(deployment: Any, expected: bool) -> None:
    assert is_available(deployment) is expected


def test_why_etcd_does_not_begin_is_shown() -> None:
    silent = {"type": "Available", "status": "Unknown", "message": "Talos at 10.0.0.10 is silent"}
    waiting = found("TalosControlPlane", status={"conditions": [silent]})
    move = plan.next_move(ONE, seen(CLUSTER, MACHINE, GUEST, waiting), undo=False)
    assert isinstance(move, Wait)
    assert "TalosControlPlane management: Talos at 10.0.0.10 is silent" in move.message
