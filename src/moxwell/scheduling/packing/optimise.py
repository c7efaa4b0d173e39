"""
Packing that is never dearer than Karpenter's and often cheaper (mode ``optimise``). Pure.

A pod joins the node claim whose price it raises least, or opens one if that is cheaper. All
constraints are those of the exact mode. The result is compared with the exact one and used only if
it places every pod that the exact one places, at a lower price or, at the same price, on fewer
nodes.
"""

from collections.abc import Sequence

from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.packing.results import SchedulingResult
from moxwell.scheduling.packing.run import PlacementPolicy
from moxwell.scheduling.packing.solver import Solver

_EQUAL = 1e-9


def optimised(
    solver: Solver, pods: Sequence[PodDemand], removed: frozenset[str] = frozenset()
) -> SchedulingResult:
    """The cheapest of the exact packing and those that follow the price."""
    best = exact = solver.solve(pods, removed)
    for policy in (PlacementPolicy.LEAST_INCREASE, PlacementPolicy.FULLEST):
        found = solver.solve(pods, removed, policy=policy)
        if found.failures.keys() <= exact.failures.keys() and is_better(found, best):
            best = found
    return best


def is_better(found: SchedulingResult, known: SchedulingResult) -> bool:
    """Whether a result is cheaper, or equally cheap with fewer new nodes."""
    if abs(found.price - known.price) > _EQUAL:
        return found.price < known.price
    return len(found.claims) < len(known.claims)
