"""How many nodes of a pool may be disrupted for a reason at a moment. Pure."""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from moxwell.api.karpenter.nodepools import DisruptionBudget
from moxwell.errors import Invalid
from moxwell.scheduling.disruption.cluster_state import DisruptionNode, DisruptionSnapshot
from moxwell.scheduling.disruption.cron import InvalidSchedule, cron_schedule
from moxwell.scheduling.packing.rescheduling import duration_seconds

UNBOUNDED = 2**31 - 1


class DisruptionReason(StrEnum):
    """Why nodes are disrupted; budgets may name these."""

    UNDERUTILIZED = "Underutilized"
    EMPTY = "Empty"
    DRIFTED = "Drifted"


class InvalidBudget(Invalid):
    """A disruption budget has a malformed number of nodes."""

    reason = "InvalidBudget"


def is_active(budget: DisruptionBudget, now: float) -> bool:
    """
    Whether a budget applies: always, or from a hit of its schedule for its duration.

    A schedule that never hits counts as active, as in Karpenter.
    """
    if budget.schedule is None and budget.duration is None:
        return True
    if budget.schedule is None:
        raise InvalidSchedule("a budget with a duration has no schedule: set both or none")
    hit = cron_schedule(budget.schedule).next_after(now - (_seconds(budget.duration)))
    return hit is None or hit <= now


def _seconds(duration: str | None) -> float:
    seconds = duration_seconds(duration) if duration is not None else 0.0
    if seconds is None:
        raise InvalidSchedule(f"the duration {duration!r} of a budget is malformed: write 1h30m")
    return seconds


def allowed_by(budget: DisruptionBudget, nodes: int, now: float) -> int:
    """The disruptions that one budget allows in a pool with so many nodes; rounded up."""
    if not is_active(budget, now):
        return UNBOUNDED
    text = budget.nodes
    number = text.removesuffix("%")
    if not (number.isascii() and number.isdigit()) or len(number) > 9:
        raise InvalidBudget(f"{text!r} nodes in a budget: write a number or a percentage")
    return int(number) if number == text else -(-int(number) * nodes // 100)


def allowed_disruptions(
    budgets: Iterable[DisruptionBudget], nodes: int, reason: DisruptionReason, now: float
) -> int:
    """The least that the budgets for a reason allow; 0 if any budget of the pool is malformed."""
    least = UNBOUNDED
    for budget in budgets:
        try:
            allowed = allowed_by(budget, nodes, now)
        except Invalid:
            return 0
        if not budget.reasons or reason in budget.reasons:
            least = min(least, allowed)
    return least


def disruption_allowances(snapshot: DisruptionSnapshot, reason: DisruptionReason) -> dict[str, int]:
    """For each pool what its budgets allow beyond nodes that are not ready or being deleted."""
    counted = [n for n in snapshot.nodes if _counts(n)]
    nodes = Counter(n.node.pool for n in counted)
    disrupted = Counter(n.node.pool for n in counted if not n.ready or n.node.deleting)
    return {
        pool.name: max(
            0,
            allowed_disruptions(pool.budgets, nodes[pool.name], reason, snapshot.now)
            - disrupted[pool.name],
        )
        for pool in snapshot.pools
    }


def _counts(node: DisruptionNode) -> bool:
    return node.node.managed and node.node.initialized and not node.instance_terminating
