"""
Emptiness, multi-node and single-node consolidation, as Karpenter decides them. Pure.

A command deletes nodes whose pods fit elsewhere, or replaces them by one cheaper node. Nodes whose
price per cost of disruption is highest come first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from moxwell.scheduling.disruption.balanced import PoolTotals, approves, can_be_approved
from moxwell.scheduling.disruption.candidates import (
    DisruptionBlocked,
    DisruptionCandidate,
    by_savings,
    within_allowances,
)
from moxwell.scheduling.disruption.commands import DisruptionCommand, NodeReplacement
from moxwell.scheduling.disruption.replacements import ReplacementRules, may_be
from moxwell.scheduling.disruption.simulation import DisruptionSimulator
from moxwell.scheduling.packing.results import PlannedClaim
from moxwell.scheduling.well_known_labels import ON_DEMAND, SPOT

MOST_NODES = 101  # that one command of multi-node consolidation removes

Candidates = Sequence[DisruptionCandidate]
Consolidation = DisruptionCommand | DisruptionBlocked


@dataclass(frozen=True, slots=True)
class SingleNodeOutcome:
    """The command of single-node consolidation, and why nodes that came earlier stay, by name."""

    command: DisruptionCommand | None = None
    blocked: Mapping[str, DisruptionBlocked] = field(default_factory=dict)


class Consolidator:
    """Decides about consolidation in one snapshot."""

    def __init__(self, simulator: DisruptionSimulator, totals: Mapping[str, PoolTotals]) -> None:
        self._simulator = simulator
        self._totals = totals
        self._rules = ReplacementRules(simulator.solver.algebra)

    def emptiness(
        self, candidates: Candidates, allowances: dict[str, int]
    ) -> DisruptionCommand | None:
        """Delete the empty nodes that the budgets allow."""
        empty = within_allowances(by_savings(c for c in candidates if c.is_empty), allowances)
        return DisruptionCommand(tuple(empty)) if empty else None

    def single_node(
        self, candidates: Candidates, allowances: Mapping[str, int]
    ) -> SingleNodeOutcome:
        """The first node that can be deleted or replaced; the pools take turns."""
        blocked: dict[str, DisruptionBlocked] = {}
        for each in in_turns(by_savings(candidates)):
            if not allowances.get(each.pool.name) or not can_be_approved(each, self._totals):
                continue
            found = self.consolidate((each,))
            if isinstance(found, DisruptionBlocked):
                blocked[each.name] = found
            elif approves(found, self._totals):
                return SingleNodeOutcome(found, blocked)
        return SingleNodeOutcome(None, blocked)

    def multi_node(
        self, candidates: Candidates, allowances: dict[str, int]
    ) -> DisruptionCommand | None:
        """The longest row of first candidates, at least two, that a binary search finds."""
        row = within_allowances(by_savings(candidates), allowances)
        least, most = 2, min(len(row), MOST_NODES)
        best: DisruptionCommand | None = None
        while least <= most:
            size = (least + most) // 2
            found = self._together(row[:size])
            if found is not None:
                best, least = found, size + 1
            else:
                most = size - 1
        return best

    def _together(self, candidates: Candidates) -> DisruptionCommand | None:
        found = self.consolidate(candidates)
        if isinstance(found, DisruptionBlocked):
            return None
        if found.replacements:
            replacement = self._rules.unlike(found.replacements[0], candidates)
            if isinstance(replacement, DisruptionBlocked):
                return None
            found = DisruptionCommand(found.candidates, (replacement,), found.placement)
        return found if approves(found, self._totals) else None

    def consolidate(self, candidates: Candidates) -> Consolidation:
        """Delete the nodes or replace them by one cheaper node, or why that is not possible."""
        removal = self._simulator.without(candidates)
        if removal.unplaced:
            return DisruptionBlocked(removal.message)
        claims = removal.placement.claims
        if not claims:
            return DisruptionCommand(tuple(candidates), (), removal.placement)
        if len(claims) != 1:
            return DisruptionBlocked(f"Can't remove without creating {len(claims)} candidates")
        replacement = self._replacement(candidates, claims[0])
        if isinstance(replacement, DisruptionBlocked):
            return replacement
        return DisruptionCommand(tuple(candidates), (replacement,), removal.placement)

    def _replacement(
        self, candidates: Candidates, claim: PlannedClaim
    ) -> NodeReplacement | DisruptionBlocked:
        price = sum(c.price for c in candidates)
        given = self._rules.from_claim(claim)
        spot = may_be(claim.requirements, SPOT)
        if spot and all(c.capacity_type == SPOT for c in candidates):
            return self._spot_to_spot(given, price, alone=len(candidates) == 1)
        found = self._rules.cheaper(given, price)
        if isinstance(found, DisruptionBlocked):
            return found
        if spot and may_be(claim.requirements, ON_DEMAND):
            return self._rules.only_spot(found)
        return found

    def _spot_to_spot(
        self, given: NodeReplacement, price: float, *, alone: bool
    ) -> NodeReplacement | DisruptionBlocked:
        if not self._simulator.snapshot.spot_to_spot:
            return DisruptionBlocked(
                "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
            )
        offered = self._rules.launchable(self._rules.only_spot(given))
        found = self._rules.cheaper(offered, price)
        if isinstance(found, DisruptionBlocked) or not alone:
            return found
        return self._rules.flexible_spot(found)


def in_turns(candidates: Candidates) -> list[DisruptionCandidate]:
    """
    The first candidate of each pool, then the second of each, and so on.

    The pool whose first candidate saves most comes first; Karpenter mostly does the same, and
    sometimes starts with another.
    """
    pools: dict[str, list[DisruptionCandidate]] = {}
    for each in candidates:
        pools.setdefault(each.pool.name, []).append(each)
    longest = max(map(len, pools.values()), default=0)
    return [
        pools[name][turn] for turn in range(longest) for name in pools if turn < len(pools[name])
    ]
