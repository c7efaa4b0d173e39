"""Node lifecycle and pod garbage collection: unreachable nodes and pods of nodes that are gone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from moxwell.embedded.controllermanager.nodelifecycle.plan import (
    GRACE_SECONDS,
    KUBELET_CONDITIONS,
    OBSERVE_SECONDS,
    RETRY_SECONDS,
    Eviction,
    EvictNode,
    ObservedNode,
    describe,
    next_move,
)
from moxwell.embedded.controllermanager.podgc.plan import next_move as next_pod_move
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Merge, Writes

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD = "2025-06-01T00:00:00Z"
SILENT = GRACE_SECONDS + 1
LONG = GRACE_SECONDS + OBSERVE_SECONDS + 1
UNREACHABLE, NOT_READY = "node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"


def node(ready: str = "True", *taints: tuple[str, str]) -> Json:
    row = {"type": "Ready", "status": ready, "reason": "r", "lastTransitionTime": OLD}
    there = [{"key": key, "effect": effect, "timeAdded": OLD} for key, effect in taints]
    return {
        "metadata": {"name": "n", "resourceVersion": "7"},
        "spec": {"taints": there} if there else {},
        "status": {"conditions": [row] if ready else []},
    }


def seen(obj: Json, silent: float, eviction: Eviction = Eviction.ALLOWED) -> ObservedNode:
    return ObservedNode(NOW, silent, tuple(obj["status"]["conditions"]), eviction, "z", 0.1)


SCHEDULE, EXECUTE = (UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")
MINE = ("mine", "NoExecute")
DELAYED, CANCELLED = Eviction.DELAYED, Eviction.CANCELLED


@pytest.mark.parametrize(
    ("obj", "silent", "eviction", "taints"),
    [
        pytest.param(node(), 0, Eviction.ALLOWED, None, id="it renews its lease"),
        pytest.param(node(""), 50, Eviction.ALLOWED, None, id="new, no status yet"),
        pytest.param(node(""), 61, Eviction.ALLOWED, [SCHEDULE], id="it never reported"),
        pytest.param(node(), SILENT, Eviction.ALLOWED, [SCHEDULE], id="silent: not schedulable"),
        pytest.param(node("True", MINE), SILENT, DELAYED, [MINE, SCHEDULE], id="others' stay"),
        pytest.param(
            node("Unknown", SCHEDULE), SILENT, Eviction.ALLOWED, None, id="its zone is not known"
        ),
        pytest.param(
            node("Unknown", SCHEDULE),
            LONG,
            Eviction.ALLOWED,
            [SCHEDULE, EXECUTE],
            id="silent for long: evicted",
        ),
        pytest.param(node("Unknown", SCHEDULE), LONG, DELAYED, None, id="rate of the zone"),
        pytest.param(
            node("Unknown", SCHEDULE, EXECUTE), LONG, DELAYED, None, id="evicted: stays evicted"
        ),
        pytest.param(
            node("Unknown", SCHEDULE, EXECUTE),
            LONG,
            CANCELLED,
            [SCHEDULE],
            id="every zone is disrupted: not evicted any more",
        ),
        pytest.param(
            node("Unknown", SCHEDULE, EXECUTE),
            0,
            Eviction.ALLOWED,
            None,
            id="the lease is renewed, the kubelet has not reported: as before",
        ),
        pytest.param(node("True", SCHEDULE, EXECUTE), 0, Eviction.ALLOWED, [], id="ready again"),
        pytest.param(
            node("False"), 0, Eviction.ALLOWED, [(NOT_READY, "NoSchedule")], id="not ready"
        ),
        pytest.param(
            node("False", SCHEDULE, EXECUTE),
            0,
            DELAYED,
            [(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")],
            id="silent, then not ready: the taints are exchanged",
        ),
    ],
)
def test_taints(
    obj: Json, silent: float, eviction: Eviction, taints: list[tuple[str, str]] | None
) -> None:
    move = next_move(obj, seen(obj, silent, eviction))
    assert isinstance(move, Done | Writes | EvictNode)
    assert move.requeue_after is not None
    assert 0 < move.requeue_after <= OBSERVE_SECONDS + 0.1
    if taints is None:
        assert isinstance(move, Done)
        return
    assert not isinstance(move, Done)
    writes = move.writes if isinstance(move, EvictNode) else move
    (merge,) = writes.writes
    assert isinstance(merge, Merge)
    assert merge.change["metadata"] == {"resourceVersion": "7"}
    written = merge.change["spec"]["taints"] or []
    assert [(t["key"], t["effect"]) for t in written] == taints


def test_an_eviction_takes_a_token_of_the_zone() -> None:
    obj = node("Unknown", SCHEDULE)
    move = next_move(obj, seen(obj, LONG))
    assert isinstance(move, EvictNode)
    assert (move.zone, move.rate, move.requeue_after) == ("z", 0.1, RETRY_SECONDS)


def test_conditions_of_a_silent_node_are_unknown_since_the_observation() -> None:
    obj = node()
    status = describe(obj, seen(obj, SILENT))
    assert status is not None
    rows = {c["type"]: c for c in status["conditions"]}
    assert set(rows) == set(KUBELET_CONDITIONS)
    assert {c["status"] for c in rows.values()} == {"Unknown"}
    assert {c["lastTransitionTime"] for c in rows.values()} == {"2026-01-01T00:00:00Z"}
    assert rows["Ready"]["reason"] == "NodeStatusUnknown"
    assert rows["DiskPressure"]["reason"] == "NodeStatusNeverUpdated"


def test_conditions_that_are_unknown_keep_their_time() -> None:
    rows = tuple({"type": t, "status": "Unknown"} for t in KUBELET_CONDITIONS)
    assert describe(node("Unknown"), ObservedNode(NOW, SILENT, rows)) is None
    assert describe(node(), seen(node(), 1)) is None


def test_the_time_of_a_taint_is_that_of_the_first() -> None:
    obj = node("Unknown", SCHEDULE)
    move = next_move(obj, ObservedNode(NOW + timedelta(minutes=1), LONG))
    assert isinstance(move, EvictNode)
    (merge,) = move.writes.writes
    assert isinstance(merge, Merge)
    assert [t["timeAdded"] for t in merge.change["spec"]["taints"]] == [OLD, "2026-01-01T00:01:00Z"]


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
