"""
Packing whose price is at most that of Karpenter's, and often lower (mode ``optimise``). Pure.

The pods are packed again by other policies: a pod joins the fullest claim that fits or, in batches
of moderate size, the claim whose price it raises least, and opens one if that is cheaper. Where
Karpenter draws one of several equal topology domains, moderate batches are packed with other draws
too. Where the extra ``solver`` is installed, moderate batches are packed again with claims that
grow only as far as the types that HiGHS would buy. All constraints are those of the exact mode.
Where the hosts are visible, every packing fits on them, each claim with a type, a host and NUMA
nodes of its own. Such a packing is used only if it places every pod that the exact one places, at a
lower price or, at the same price, on fewer nodes.
"""

from collections.abc import Sequence

from moxwell.scheduling.packing.lower_bound import LowerBoundUnavailable, relaxed_packing
from moxwell.scheduling.packing.pods import PodDemand, PodShape
from moxwell.scheduling.packing.results import SchedulingResult
from moxwell.scheduling.packing.run import PlacementPolicy
from moxwell.scheduling.packing.solver import Solver
from moxwell.scheduling.well_known_labels import HOSTNAME

_EQUAL = 1e-9
_MOST_PODS_BY_PRICE = 500
_MOST_PODS_IN_TURNS = 150  # with more pods, lucky turns even out and comparing prices takes long
_OTHER_TURNS = (1, 2)
_MOST_VARIABLES = 300  # of the model that HiGHS solves; larger ones take longer than the packing


def optimised(
    solver: Solver, pods: Sequence[PodDemand], removed: frozenset[str] = frozenset()
) -> SchedulingResult:
    """The cheapest of the exact packing and those that follow the price."""
    best = exact = solver.solve(pods, removed, within_hosts=True)
    for policy, turn in attempts(pods):
        found = solver.solve(pods, removed, policy=policy, turn=turn, within_hosts=True)
        if found.failures.keys() <= exact.failures.keys() and is_better(found, best):
            best = found
    return _guided(solver, pods, removed, exact, best)


def _guided(
    solver: Solver,
    pods: Sequence[PodDemand],
    removed: frozenset[str],
    exact: SchedulingResult,
    best: SchedulingResult,
) -> SchedulingResult:
    """The best known packing, or one with the types that HiGHS would buy if that is better."""
    if removed or len(pods) > _MOST_PODS_BY_PRICE or not best.claims:
        return best
    placed = [p for p in pods if p.uid not in best.failures]
    try:
        guide = relaxed_packing(solver, placed, _MOST_VARIABLES)
    except LowerBoundUnavailable:
        return best  # the extra is optional
    if guide is None or not guide.wanted or best.price <= guide.bound + _EQUAL:
        return best
    for policy in (PlacementPolicy.FULLEST, PlacementPolicy.LEAST_INCREASE):
        found = solver.solve(pods, policy=policy, within_hosts=True, wanted=guide.wanted)
        if found.failures.keys() <= exact.failures.keys() and is_better(found, best):
            best = found
    return best


def attempts(pods: Sequence[PodDemand]) -> tuple[tuple[PlacementPolicy, int], ...]:
    """
    The policies to try, with the turn of equal domains.

    Comparing prices takes time that grows with the square of the pods.
    """
    if len(pods) > _MOST_PODS_BY_PRICE:
        return ((PlacementPolicy.FULLEST, 0),)
    first = ((PlacementPolicy.FULLEST, 0), (PlacementPolicy.LEAST_INCREASE, 0))
    if not any(map(_has_domains, {p.shape for p in pods})):
        return first
    again = [
        policy
        for policy in PlacementPolicy
        if policy is not PlacementPolicy.LEAST_INCREASE or len(pods) <= _MOST_PODS_IN_TURNS
    ]
    return (*first, *((policy, turn) for turn in _OTHER_TURNS for policy in again))


def _has_domains(shape: PodShape) -> bool:
    """Whether a pod may have to take one of several topology domains."""
    keys = {each.topology_key for each in shape.spread}
    keys |= {each.topology_key for each in (*shape.affinity, *shape.preferred_affinity)}
    return bool(keys - {HOSTNAME})


def is_better(found: SchedulingResult, known: SchedulingResult) -> bool:
    """Whether a result is cheaper, or equally cheap with fewer new nodes."""
    saved = known.price - found.price
    if abs(saved) > _EQUAL:
        return saved > 0
    return len(found.claims) < len(known.claims)
