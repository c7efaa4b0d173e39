"""
Packing that is never dearer than Karpenter's and often cheaper (mode ``optimise``). Pure.

The pods are packed again by other policies: a pod joins the fullest claim that fits or, in batches
of moderate size, the claim whose price it raises least, and opens one if that is cheaper. All
constraints are those of the exact mode. Such a packing is used only if it places every pod that the
exact one places, at a lower price or, at the same price, on fewer nodes.
"""

from collections.abc import Sequence

from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.packing.results import SchedulingResult
from moxwell.scheduling.packing.run import PlacementPolicy
from moxwell.scheduling.packing.solver import Solver

_EQUAL = 1e-9
_MOST_PODS_BY_PRICE = 500


def optimised(
    solver: Solver, pods: Sequence[PodDemand], removed: frozenset[str] = frozenset()
) -> SchedulingResult:
    """The cheapest of the exact packing and those that follow the price."""
    best = exact = solver.solve(pods, removed)
    for policy in policies(len(pods)):
        found = solver.solve(pods, removed, policy=policy)
        if found.failures.keys() <= exact.failures.keys() and is_better(found, best):
            best = found
    return best


def policies(pods: int) -> tuple[PlacementPolicy, ...]:
    """The policies to try; comparing prices takes time that grows with the square of the pods."""
    if pods > _MOST_PODS_BY_PRICE:
        return (PlacementPolicy.FULLEST,)
    return (PlacementPolicy.FULLEST, PlacementPolicy.LEAST_INCREASE)


def is_better(found: SchedulingResult, known: SchedulingResult) -> bool:
    """Whether a result is cheaper, or equally cheap with fewer new nodes."""
    if abs(found.price - known.price) > _EQUAL:
        return found.price < known.price
    return len(found.claims) < len(known.claims)
