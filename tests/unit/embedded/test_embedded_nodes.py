"""Node lifecycle and pod garbage collection: unreachable nodes and pods of nodes that are gone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from moxwell.embedded.controllermanager.nodelifecycle.plan import (
    RECHECK_SECONDS,
    ObservedNode,
    describe,
    next_move,
    with_taints,
)
from moxwell.embedded.controllermanager.podgc.plan import next_move as next_pod_move
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Writes

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODE: Json = {"metadata": {"name": "n", "creationTimestamp": NOW.isoformat()}, "spec": {}}
READY = {"type": "Ready", "status": "True"}


def lease(age: float) -> Json:
    return {"spec": {"renewTime": (NOW - timedelta(seconds=age)).isoformat()}}


TAINTED = NODE | {"spec": {"taints": with_taints(NODE, NOW, unreachable=True)}}


@pytest.mark.parametrize(
    ("node", "age", "expected", "unknown"),
    [
        pytest.param(NODE, 5, Done, False, id="it renews its lease"),
        pytest.param(NODE, None, Done, False, id="new, no lease yet"),
        pytest.param(NODE, 41, Writes, True, id="silent: tainted"),
        pytest.param(TAINTED, 41, Done, True, id="still silent"),
        pytest.param(TAINTED, 5, Writes, False, id="heard again: the taints are removed"),
    ],
)
def test_next_move(node: Json, age: float | None, expected: type, unknown: bool) -> None:
    seen = ObservedNode(NOW, None if age is None else lease(age), (READY,))
    move = next_move(node, seen)
    assert isinstance(move, expected)
    assert isinstance(move, Done | Writes)
    assert move.requeue_after is not None
    assert 0 < move.requeue_after <= RECHECK_SECONDS
    status = describe(node, seen)
    assert (status is not None) is unknown
    assert not status or status["conditions"][0]["reason"] == "NodeStatusUnknown"


def test_conditions_that_are_unknown_are_not_written_again() -> None:
    seen = ObservedNode(NOW, lease(99), ({"type": "Ready", "status": "Unknown"},))
    assert describe(NODE, seen) is None


def test_the_time_of_a_taint_is_that_of_the_first() -> None:
    later = NOW + timedelta(minutes=1)
    taints = TAINTED["spec"]["taints"]
    assert [t["effect"] for t in taints] == ["NoSchedule", "NoExecute"]
    assert with_taints(TAINTED, later, unreachable=True) == taints
    assert with_taints(TAINTED, later, unreachable=False) == []


@pytest.mark.parametrize(
    ("node", "exists", "deleted"),
    [
        pytest.param("n", True, False, id="its node exists"),
        pytest.param("n", False, True, id="its node is gone"),
        pytest.param("", False, False, id="it is not scheduled"),
    ],
)
def test_pods_of_a_node_that_is_gone_are_deleted(node: str, exists: bool, deleted: bool) -> None:
    pod = {"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": {"nodeName": node}}
    assert isinstance(next_pod_move(pod, exists), Writes) is deleted
