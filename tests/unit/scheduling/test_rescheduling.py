"""Which pods need another node, and what keeps them from being evicted."""

from dataclasses import replace
from typing import Any

import pytest

from moxwell.api.core.pods import Toleration
from moxwell.scheduling.packing.pods import PodSelector
from moxwell.scheduling.packing.rescheduling import (
    DisruptionLimit,
    blocking_limits,
    currently_reschedulable,
    duration_seconds,
    is_evictable,
    is_reschedulable,
    must_not_be_disrupted,
)
from moxwell.scheduling.well_known_labels import DO_NOT_DISRUPT
from unit.scheduling.packing_scenes import pod

NOW = 1000.0
RUNNING = replace(pod("p", on="n", labels={"app": "x"}), owner="ReplicaSet", started=400.0)
ALL_X = PodSelector((("app", "x"),))


@pytest.mark.parametrize(
    "changes, reschedulable",
    [
        ({}, True),
        ({"owner": "DaemonSet"}, False),
        ({"owner": "Node"}, False),
        ({"phase": "Succeeded"}, False),
        ({"terminating": True}, False),
        ({"terminating": True, "owner": "StatefulSet"}, True),
    ],
)
def test_pods_that_live_on_need_another_node(changes: dict[str, Any], reschedulable: bool) -> None:
    assert is_reschedulable(replace(RUNNING, **changes)) == reschedulable


@pytest.mark.parametrize(
    "value, started, holds",
    [
        (None, 400.0, False),
        ("true", 400.0, True),
        ("false", 400.0, False),
        ("9m", 400.0, False),
        ("11m", 400.0, True),
        ("10m0.5s", 400.0, True),
        ("11m", None, True),
        ("-5m", None, False),
        ("0s", None, False),
        ("soon", 400.0, False),
    ],
)
def test_do_not_disrupt_holds_always_or_for_a_time(
    value: str | None, started: float | None, holds: bool
) -> None:
    annotations = () if value is None else ((DO_NOT_DISRUPT, value),)
    marked = replace(RUNNING, annotations=annotations, started=started)
    assert must_not_be_disrupted(marked, NOW) == holds
    assert is_evictable(marked, NOW) != holds


@pytest.mark.parametrize(
    "text, seconds",
    [("1h30m", 5400.0), ("1.5s", 1.5), ("+2m", 120.0), ("5", None), ("", None), ("1h x", None)],
)
def test_durations_are_gos(text: str, seconds: float | None) -> None:
    assert duration_seconds(text) == seconds


def limit(**changes: Any) -> DisruptionLimit:
    return replace(DisruptionLimit("default", "a", ALL_X, 1), **changes)


@pytest.mark.parametrize(
    "limits, now_blocked, for_good",
    [
        ([limit()], False, False),
        ([limit(allowed=0)], True, False),
        ([limit(allowed=0, blocks_always=True)], True, True),
        ([limit(namespace="other", allowed=0, blocks_always=True)], False, False),
        ([limit(selector=None, allowed=0)], False, False),
        ([limit(), limit(name="b")], True, True),
    ],
)
def test_budgets_block_eviction(
    limits: list[DisruptionLimit], now_blocked: bool, for_good: bool
) -> None:
    assert bool(blocking_limits(RUNNING, limits, NOW, for_good=False)) == now_blocked
    assert bool(blocking_limits(RUNNING, limits, NOW, for_good=True)) == for_good
    assert bool(currently_reschedulable([RUNNING], limits, NOW)) != for_good


def test_an_unhealthy_pod_may_go_and_a_tolerant_one_is_not_evicted() -> None:
    sick = replace(RUNNING, ready=False)
    assert not blocking_limits(sick, [limit(allowed=0, allows_unhealthy=True)], NOW, for_good=False)
    shape = replace(RUNNING.shape, tolerations=(Toleration(operator="Exists"),))
    assert not is_evictable(replace(RUNNING, shape=shape), NOW)
