"""The scheduler: the choice of a node, and the next move of an unbound pod."""

from typing import Any

import pytest

from moxwell.embedded.controllermanager.resources import PODS
from moxwell.embedded.scheduler.controller import BoundPods
from moxwell.embedded.scheduler.node_choice import NodeChoice, choose_node, tolerates
from moxwell.embedded.scheduler.plan import BindPod, ObservedScheduling, describe, next_move
from moxwell.embedded.scheduler.volumes import UnboundClaim, VolumeConstraints
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Writes

Json = dict[str, Any]


def node(name: str, *, zone: str = "", cpu: str = "4", **spec: Any) -> Json:
    labels = {"kubernetes.io/hostname": name} | (
        {"topology.kubernetes.io/zone": zone} if zone else {}
    )
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    meta = {"name": name, "labels": labels}
    return {"metadata": meta, "spec": spec, "status": {"allocatable": allocatable}}


def pod(name: str = "p", *, on: str = "", owner: str = "rs", cpu: str = "1", **spec: Any) -> Json:
    resources = {"requests": {"cpu": cpu}}
    body = {"containers": [{"name": "c", "resources": resources}], **spec}
    owners = [{"uid": owner, "controller": True}]
    return {
        "metadata": {"name": name, "namespace": "d", "ownerReferences": owners},
        "spec": body | ({"nodeName": on} if on else {}),
    }


TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    "wanted, nodes, bound, choice",
    [
        pytest.param(
            pod(), [node("b"), node("a")], [], NodeChoice("a"), id="a tie is decided by name"
        ),
        pytest.param(
            pod(), [node("a"), node("b")], [pod(on="a")], NodeChoice("b"), id="away from siblings"
        ),
        pytest.param(
            pod(),
            [node("a", zone="x"), node("b", zone="x"), node("c", zone="y")],
            [pod(on="a")],
            NodeChoice("c"),
            id="into the emptier zone",
        ),
        pytest.param(
            pod(),
            [node("a"), node("b")],
            [pod(on="a", owner="other")],
            NodeChoice("b"),
            id="to the emptier node",
        ),
        pytest.param(
            pod(nodeSelector={"disk": "ssd"}),
            [node("a")],
            [],
            NodeChoice(
                why="0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
            ),
            id="no node has the label",
        ),
        pytest.param(
            pod(cpu="8"),
            [node("a"), node("b")],
            [],
            NodeChoice(why="0/2 nodes are available: 2 Insufficient cpu."),
            id="too large",
        ),
        pytest.param(
            pod(),
            [node("a", taints=[TAINT]), node("b", unschedulable=True)],
            [],
            NodeChoice(
                why="0/2 nodes are available: 1 node(s) had untolerated taint {k: v}, "
                "1 node(s) were unschedulable."
            ),
            id="tainted and cordoned",
        ),
        pytest.param(
            pod(tolerations=[{"operator": "Exists"}]),
            [node("a", taints=[TAINT])],
            [],
            NodeChoice("a"),
            id="tolerated",
        ),
        pytest.param(pod(), [], [], NodeChoice(why="no nodes available"), id="no nodes"),
        pytest.param(
            pod(
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {
                                            "key": "topology.kubernetes.io/zone",
                                            "operator": "In",
                                            "values": ["y"],
                                        }
                                    ]
                                }
                            ]
                        }
                    }
                }
            ),
            [node("a", zone="x"), node("b", zone="y")],
            [],
            NodeChoice("b"),
            id="required affinity",
        ),
    ],
)
def test_choose_node(
    wanted: Json, nodes: list[Json], bound: list[Json], choice: NodeChoice
) -> None:
    assert choose_node(wanted, nodes, bound) == choice


@pytest.mark.parametrize(
    "toleration, yes",
    [
        pytest.param({"key": "k", "operator": "Exists"}, True, id="key exists"),
        pytest.param({"key": "k", "value": "v"}, True, id="equal"),
        pytest.param({"key": "k", "value": "w"}, False, id="another value"),
        pytest.param({"key": "k", "value": "v", "effect": "NoExecute"}, False, id="another effect"),
    ],
)
def test_tolerates(toleration: Json, yes: bool) -> None:
    assert tolerates(toleration, TAINT) is yes


CLAIM: Json = {
    "metadata": {"name": "data", "namespace": "d", "uid": "u", "resourceVersion": "1"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "1Gi"}},
    },
}
CLASS: Json = {"metadata": {"name": "fast"}, "provisioner": "csi"}
CAPACITY: Json = {"storageClassName": "fast", "capacity": "9Gi"}
SELECTED = {"volume.kubernetes.io/selected-node": "a"}
CHOSEN = {**CLAIM, "metadata": {**CLAIM["metadata"], "annotations": SELECTED}}


def waiting(claim: Json) -> VolumeConstraints:
    return VolumeConstraints(waiting=(UnboundClaim(claim, CLASS),), capacities=(CAPACITY,))


@pytest.mark.parametrize(
    ("obj", "seen", "expected"),
    [
        pytest.param(pod(), ObservedScheduling((node("a"),)), BindPod("p", "d", "a"), id="bound"),
        pytest.param(pod(on="a"), ObservedScheduling(), Done(), id="bound already"),
        pytest.param(
            pod(schedulerName="other"), ObservedScheduling((node("a"),)), Done(), id="not ours"
        ),
        pytest.param(
            pod(schedulingGates=[{"name": "g"}]),
            ObservedScheduling((node("a"),)),
            Done(),
            id="gated",
        ),
        pytest.param(pod(), ObservedScheduling(), "Unschedulable", id="no node"),
        pytest.param(
            pod(),
            ObservedScheduling((node("a"),), volumes=VolumeConstraints(problem="no claim")),
            "Unschedulable",
            id="a problem of its volumes",
        ),
        pytest.param(
            pod(),
            ObservedScheduling((node("a"),), volumes=waiting(CLAIM)),
            "patch PersistentVolumeClaim data",
            id="the node is selected for its claim",
        ),
        pytest.param(
            pod(),
            ObservedScheduling((node("a"),), volumes=waiting(CHOSEN)),
            "WaitingForVolumes",
            id="the claim is provisioned",
        ),
    ],
)
def test_next_move(obj: Json, seen: ObservedScheduling, expected: Any) -> None:
    move = next_move(obj, seen)
    if isinstance(move, Wait):
        assert move.reason == expected
    else:
        assert (str(move) if isinstance(move, Writes) else move) == expected
    unschedulable = expected == "Unschedulable"
    assert (describe(move) is not None) is unschedulable


def test_a_pod_that_was_just_bound_counts_before_the_cache_shows_it() -> None:
    cache: Cache[Json] = Cache(PODS)
    first = pod("first")
    first["metadata"]["resourceVersion"] = "1"
    cache.put(first)
    bound = BoundPods(cache)
    bound.assume(Key("d", "first"), "a")
    assert [p["spec"]["nodeName"] for p in bound.list()] == ["a"]
    shown = pod("first", on="b")
    shown["metadata"]["resourceVersion"] = "2"
    cache.put(shown)
    assert [p["spec"]["nodeName"] for p in bound.list()] == ["b"]
    cache.remove(Key("d", "first"))
    assert bound.list() == []
