"""States of zones, rates of eviction, and durations that no clock can shorten."""

from typing import Any

import pytest

from moxwell.embedded.observed_durations import FORGET_SECONDS, ObservedDurations
from moxwell.embedded.token_buckets import TokenBuckets
from moxwell.embedded.zones import (
    RATE,
    SECONDARY_RATE,
    ZoneNodes,
    all_disrupted,
    count_zones,
    eviction_rate,
    ready_status,
    zone_of,
    zone_state,
)
from moxwell.testing.loop import LoopClock, run_virtual

Json = dict[str, Any]


def node(zone: str, ready: str) -> Json:
    labels = {"topology.kubernetes.io/zone": zone} if zone else {}
    rows = [{"type": "Ready", "status": ready}] if ready else []
    return {"metadata": {"name": "n", "labels": labels}, "status": {"conditions": rows}}


@pytest.mark.parametrize(
    ("total", "not_ready", "state"),
    [
        (0, 0, "Normal"),
        (1, 0, "Normal"),
        (1, 1, "FullDisruption"),
        (3, 2, "Normal"),
        (5, 3, "PartialDisruption"),
        (6, 3, "Normal"),
        (20, 11, "PartialDisruption"),
        (20, 20, "FullDisruption"),
    ],
)
def test_zone_state(total: int, not_ready: int, state: str) -> None:
    assert zone_state(ZoneNodes(total, not_ready)) == state


@pytest.mark.parametrize(
    ("zones", "rate"),
    [
        pytest.param({"a": (3, 1)}, RATE, id="normal"),
        pytest.param({"a": (3, 3)}, 0, id="everything is silent"),
        pytest.param({"a": (1, 1)}, 0, id="the only node is silent"),
        pytest.param({"a": (1, 1), "b": (3, 0)}, RATE, id="a small zone failed"),
        pytest.param({"a": (3, 3), "b": (3, 0)}, 0, id="a whole zone is silent"),
        pytest.param({"a": (5, 3), "b": (3, 0)}, 0, id="most of a zone is silent"),
        pytest.param({"a": (60, 40)}, SECONDARY_RATE, id="most of a large zone is silent"),
        pytest.param({"b": (3, 0)}, RATE, id="a machine without a node"),
    ],
)
def test_eviction_rate(zones: dict[str, tuple[int, int]], rate: float) -> None:
    assert eviction_rate("a", {name: ZoneNodes(*counts) for name, counts in zones.items()}) == rate


def test_nodes_are_counted_by_zone() -> None:
    nodes = [node("a", "True"), node("a", "Unknown"), node("", ""), node("b", "False")]
    zones = count_zones(nodes, lambda n: ready_status(n) != "True")
    assert zones == {"/a": ZoneNodes(2, 1), "": ZoneNodes(1, 1), "/b": ZoneNodes(1, 1)}
    assert not all_disrupted(zones)
    assert not all_disrupted({})
    assert zone_of(nodes[2]) == ""


def test_durations_count_only_what_is_observed() -> None:
    async def story() -> None:
        clock = LoopClock()
        held = ObservedDurations(clock, longest_gap=30)
        assert held.observe("n", 1) == 0
        await clock.sleep(20)
        assert held.observe("n", 1) == 20
        await clock.sleep(600)  # this process was stopped
        assert held.observe("n", 1) == 20
        await clock.sleep(10)
        assert held.observe("n", 1) == 30
        assert held.observe("n", 2) == 0
        held.restart("other")
        await clock.sleep(10)
        held.restart("n")
        assert held.observe("n", 2) == 0
        await clock.sleep(FORGET_SECONDS + 1)
        assert held.observe("m", 1) == 0
        assert held.observe("n", 2) == 0

    run_virtual(story())


def test_a_bucket_holds_one_token() -> None:
    async def story() -> None:
        clock = LoopClock()
        buckets = TokenBuckets(clock)
        assert not buckets.available("z", 0)
        assert not buckets.take("z", 0)
        await clock.sleep(100)
        assert buckets.available("z", 0.1)
        assert buckets.take("z", 0.1)
        assert not buckets.take("z", 0.1)
        assert buckets.take("y", 0.1)
        await clock.sleep(9)
        assert not buckets.available("z", 0.1)
        await clock.sleep(2)
        assert buckets.take("z", 0.1)

    run_virtual(story())
