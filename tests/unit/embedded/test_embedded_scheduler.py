"""Where a pod goes, and the words that say why nowhere."""

from typing import Any

import pytest

from moxwell.embedded.scheduler.plan import Choice, choose_node, tolerates

Json = dict[str, Any]


def node(name: str, *, zone: str = "", cpu: str = "4", **spec: Any) -> Json:
    labels = {"kubernetes.io/hostname": name} | (
        {"topology.kubernetes.io/zone": zone} if zone else {}
    )
    room = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    meta = {"name": name, "labels": labels}
    return {"metadata": meta, "spec": spec, "status": {"allocatable": room}}


def pod(name: str = "p", *, on: str = "", owner: str = "rs", cpu: str = "1", **spec: Any) -> Json:
    resources = {"requests": {"cpu": cpu}}
    body = {"containers": [{"name": "c", "resources": resources}], **spec}
    owners = [{"uid": owner, "controller": True}]
    return {
        "metadata": {"name": name, "ownerReferences": owners},
        "spec": body | ({"nodeName": on} if on else {}),
    }


TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    "wanted, nodes, bound, choice",
    [
        pytest.param(pod(), [node("b"), node("a")], [], Choice("a"), id="a tie goes by name"),
        pytest.param(
            pod(), [node("a"), node("b")], [pod(on="a")], Choice("b"), id="away from siblings"
        ),
        pytest.param(
            pod(),
            [node("a", zone="x"), node("b", zone="x"), node("c", zone="y")],
            [pod(on="a")],
            Choice("c"),
            id="into the emptier zone",
        ),
        pytest.param(
            pod(),
            [node("a"), node("b")],
            [pod(on="a", owner="other")],
            Choice("b"),
            id="to the emptier node",
        ),
        pytest.param(
            pod(nodeSelector={"disk": "ssd"}),
            [node("a")],
            [],
            Choice(
                why="0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
            ),
            id="no node has the label",
        ),
        pytest.param(
            pod(cpu="8"),
            [node("a"), node("b")],
            [],
            Choice(why="0/2 nodes are available: 2 Insufficient cpu."),
            id="too large",
        ),
        pytest.param(
            pod(),
            [node("a", taints=[TAINT]), node("b", unschedulable=True)],
            [],
            Choice(
                why="0/2 nodes are available: 1 node(s) had untolerated taint {k: v}, "
                "1 node(s) were unschedulable."
            ),
            id="tainted and cordoned",
        ),
        pytest.param(
            pod(tolerations=[{"operator": "Exists"}]),
            [node("a", taints=[TAINT])],
            [],
            Choice("a"),
            id="tolerated",
        ),
        pytest.param(pod(), [], [], Choice(why="no nodes available"), id="no nodes"),
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
            Choice("b"),
            id="required affinity",
        ),
    ],
)
def test_choose_node(wanted: Json, nodes: list[Json], bound: list[Json], choice: Choice) -> None:
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
