"""Budgets of node pools: numbers, percentages, reasons and schedules."""

from datetime import UTC, datetime

import pytest

from moxwell.api.karpenter.nodepools import DisruptionBudget
from moxwell.scheduling.disruption.budgets import (
    UNBOUNDED,
    DisruptionReason,
    allowed_disruptions,
    disruption_allowances,
    is_active,
)
from moxwell.scheduling.disruption.cron import InvalidSchedule, cron_schedule
from unit.scheduling.disruption_scenes import NOW, bound, on_node, own_pool, scene

THURSDAY = "2026-01-01 12:00"


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("0 12 * * *", "2026-01-01 11:59", "2026-01-01 12:00"),
        ("0 12 * * *", THURSDAY, "2026-01-02 12:00"),
        ("*/20 * * * *", "2026-01-01 12:21", "2026-01-01 12:40"),
        ("5/20 * * * *", "2026-01-01 12:46", "2026-01-01 13:05"),
        ("0 9-17/4 * * *", "2026-01-01 13:00", "2026-01-01 17:00"),
        ("0 0 * * mon-fri", "2026-01-02 00:00", "2026-01-05 00:00"),
        ("0 0 13 * FRI", "2026-01-02 00:00", "2026-01-09 00:00"),  # either day matches
        ("0 0 13 * *", "2026-01-02 00:00", "2026-01-13 00:00"),
        ("0 0 ? * 0", "2026-01-01 00:00", "2026-01-04 00:00"),
        ("0 0 29 2 *", "2026-01-01 00:00", "2028-02-29 00:00"),
        ("0 0 1 dec *", "2026-12-01 00:00", "2027-12-01 00:00"),
        ("@weekly", THURSDAY, "2026-01-04 00:00"),
        ("@yearly", THURSDAY, "2027-01-01 00:00"),
        ("@hourly", "2026-01-01 12:00:30", "2026-01-01 13:00"),
        ("1,,2 0 * * *", "2026-01-01 00:01", "2026-01-01 00:02"),
    ],
)
def test_the_next_hit_of_a_schedule(schedule: str, after: str, expected: str) -> None:
    assert cron_schedule(schedule).next_after(at(after)) == at(expected)


def test_a_schedule_that_never_hits_has_no_next_hit() -> None:
    assert cron_schedule("0 0 30 2 *").next_after(NOW) is None


@pytest.mark.parametrize(
    "schedule",
    ["", "* * * *", "60 * * * *", "* * 0 * *", "* * * * 7", "*/0 * * * *", "5-1 * * * *",
     "a * * * *", "@every 5m", "* * * * * *", "1-2-3 * * * *", "-1 * * * *"],
)  # fmt: skip
def test_a_malformed_schedule_is_refused(schedule: str) -> None:
    with pytest.raises(InvalidSchedule):
        cron_schedule(schedule)


@pytest.mark.parametrize(
    ("schedule", "duration", "active"),
    [
        (None, None, True),
        ("0 12 * * *", "1h", True),  # begins now
        ("0 11 * * *", "1h", False),  # the hit lies exactly the duration back
        ("0 11 * * *", "1h1m", True),
        ("0 3 * * *", "1h", False),
        ("0 0 30 2 *", "1h", True),
    ],
)
def test_when_a_budget_is_active(schedule: str | None, duration: str | None, active: bool) -> None:
    budget = DisruptionBudget(nodes="0", schedule=schedule, duration=duration)
    assert is_active(budget, NOW) is active


EMPTY, DRIFTED = DisruptionReason.EMPTY, DisruptionReason.DRIFTED


@pytest.mark.parametrize(
    ("budgets", "reason", "expected"),
    [
        ((), EMPTY, UNBOUNDED),
        ((DisruptionBudget(nodes="3"),), EMPTY, 3),
        ((DisruptionBudget(nodes="10%"),), EMPTY, 2),  # of 11 nodes, rounded up
        ((DisruptionBudget(nodes="3"), DisruptionBudget(nodes="0%")), EMPTY, 0),
        ((DisruptionBudget(nodes="0", reasons=("Drifted",)),), EMPTY, UNBOUNDED),
        ((DisruptionBudget(nodes="0", reasons=("Drifted",)),), DRIFTED, 0),
        ((DisruptionBudget(nodes="0", schedule="0 3 * * *", duration="1h"),), EMPTY, UNBOUNDED),
        ((DisruptionBudget(nodes="3", schedule="never", duration="1h"),), EMPTY, 0),
        ((DisruptionBudget(nodes="3", duration="1h"),), EMPTY, 0),
        ((DisruptionBudget(nodes="many"),), EMPTY, 0),
    ],
)
def test_the_least_budget_counts_and_a_malformed_one_allows_nothing(
    budgets: tuple[DisruptionBudget, ...], reason: DisruptionReason, expected: int
) -> None:
    assert allowed_disruptions(budgets, 11, reason, NOW) == expected


def test_nodes_that_are_not_ready_or_deleting_use_up_the_budget() -> None:
    nodes = [
        on_node("a"),
        on_node("b", state={"ready": False}),
        on_node("c", deleting=True),
        on_node("d", initialized=False),  # does not count at all
        on_node("e", state={"instance_terminating": True}),
    ]
    pools = (own_pool(budgets=(DisruptionBudget(nodes="100%"),)),)
    snapshot = scene(nodes, [bound("p", "a")], pools=pools)
    assert disruption_allowances(snapshot, EMPTY) == {"default": 1}
