"""
Consolidation of many nodes into several: a search over all candidates, n to m. Pure.

Karpenter removes a row of first candidates and creates at most one node. This search starts from
rows of two orders, adds single nodes while that pays, and drops nodes that do not pay. A command
must save more than the disruption costs, whichever of its instance types is launched. A node is
never replaced by one of its own type, unless that is cheaper elsewhere.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from moxwell.scheduling.disruption.balanced import PoolTotals, approves
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
from moxwell.scheduling.packing.run import PlacementPolicy
from moxwell.scheduling.resource_lists import CPU
from moxwell.scheduling.well_known_labels import ON_DEMAND, SPOT

Row = tuple[DisruptionCandidate, ...]
_EVERY_LENGTH = 8  # rows up to this length are all tried, longer ones in steps


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """
    What the search looks for and how far.

    ``price_per_cost`` is what a unit of disruption cost, about a pod that moves, must save per
    hour; ``most_nodes`` and ``most_simulations`` bound the work.
    """

    price_per_cost: float = 0.002
    most_nodes: int = 101
    most_simulations: int = 150


@dataclass(frozen=True, slots=True)
class ConsolidationForecast:
    """What a command would save per hour beyond what its disruption costs."""

    command: DisruptionCommand
    savings: float
    value: float

    def __str__(self) -> str:
        gone, new = len(self.command.candidates), len(self.command.replacements)
        moved = sum(len(c.pods) for c in self.command.candidates)
        return (
            f"replacing {gone} nodes by {new} would save {self.savings:.4f} per hour and move "
            f"{moved} pods"
        )


@dataclass
class _Trials:
    """The simulations so far; the same nodes are not simulated twice."""

    left: int
    known: dict[frozenset[str], ConsolidationForecast | None] = field(default_factory=dict)


class ConsolidationSearch:
    """Searches one snapshot."""

    def __init__(
        self,
        simulator: DisruptionSimulator,
        totals: Mapping[str, PoolTotals],
        options: SearchOptions | None = None,
    ) -> None:
        self._simulator = simulator
        self._totals = totals
        self._options = options or SearchOptions()
        self._rules = ReplacementRules(simulator.solver.algebra)

    def forecast(self, command: DisruptionCommand) -> ConsolidationForecast:
        """A command with what it saves."""
        value = command.savings - self._options.price_per_cost * command.cost
        return ConsolidationForecast(command, command.savings, value)

    def best(
        self, candidates: Sequence[DisruptionCandidate], allowances: dict[str, int]
    ) -> ConsolidationForecast | None:
        """
        The best command that was found; None if none pays.

        Nothing is consolidated while pending pods wait for new nodes.
        """
        if self._simulator.without(()).placement.claims:
            return None
        trials = _Trials(self._options.most_simulations)
        most = self._options.most_nodes
        rows = (by_savings(candidates)[:most], by_use(candidates)[:most])
        best: ConsolidationForecast | None = None
        for row in rows:
            for each in prefixes(within_allowances(row, allowances)):
                best = better(best, self._try(trials, each))
        best = self._grown(trials, best, rows[0], allowances)
        return self._pruned(trials, best)

    def _grown(
        self,
        trials: _Trials,
        best: ConsolidationForecast | None,
        row: Iterable[DisruptionCandidate],
        allowances: dict[str, int],
    ) -> ConsolidationForecast | None:
        """The best command with further nodes, one at a time, as long as each pays."""
        for each in row:
            chosen = best.command.candidates if best else ()
            wider = (*chosen, each)
            if each in chosen or len(within_allowances(wider, allowances)) < len(wider):
                continue
            best = better(best, self._try(trials, wider))
        return best

    def _pruned(
        self, trials: _Trials, best: ConsolidationForecast | None
    ) -> ConsolidationForecast | None:
        """The best command without the nodes that do not pay."""
        for each in best.command.candidates if best else ():
            assert best is not None
            fewer = tuple(c for c in best.command.candidates if c is not each)
            if fewer:
                best = better(best, self._try(trials, fewer))
        return best

    def _try(self, trials: _Trials, row: Row) -> ConsolidationForecast | None:
        names = frozenset(c.name for c in row)
        if names not in trials.known and trials.left > 0:
            trials.left -= 1
            trials.known[names] = self._evaluated(row)
        return trials.known.get(names)

    def _evaluated(self, row: Row) -> ConsolidationForecast | None:
        best: ConsolidationForecast | None = None
        for policy in PlacementPolicy:
            command = self._command(row, policy)
            if command is None or not approves(command, self._totals):
                continue
            found = self.forecast(command)
            if found.value > 0:
                best = better(best, found)
            if not command.replacements:
                break
        return best

    def _command(self, row: Row, policy: PlacementPolicy) -> DisruptionCommand | None:
        removal = self._simulator.without(row, policy=policy, within_hosts=True)
        if removal.unplaced:
            return None
        replacements = self._cheaper(row, removal.placement.claims)
        if replacements is None:
            return None
        return DisruptionCommand(row, replacements, removal.placement)

    def _cheaper(
        self, row: Row, claims: Sequence[PlannedClaim]
    ) -> tuple[NodeReplacement, ...] | None:
        """Replacements that cost less together than the nodes, whatever is launched."""
        given = [self._launched(row, claim) for claim in claims]
        least = [_least(r) for r in given if r is not None and r.options]
        spare = sum(c.price for c in row) - sum(least)
        if len(least) < len(claims) or (claims and spare <= 0):
            return None
        found = []
        for each, price in zip(given, least, strict=True):
            assert each is not None
            kept = self._rules.cheaper(each, price + spare / len(claims))
            if isinstance(kept, NodeReplacement):
                kept = self._rules.unlike(kept, row)
            if isinstance(kept, DisruptionBlocked):
                return None
            found.append(kept)
        return tuple(found)

    def _launched(self, row: Row, claim: PlannedClaim) -> NodeReplacement | None:
        """The claim with the capacity type that it will be launched with."""
        given = self._rules.from_claim(claim)
        spot = self._rules.launchable(self._rules.only_spot(given))
        if not may_be(claim.requirements, SPOT) or not spot.options:
            return given
        if all(c.capacity_type == SPOT for c in row):
            many = len(row) > 1 and self._simulator.snapshot.spot_to_spot
            return spot if many else None
        return spot if may_be(claim.requirements, ON_DEMAND) else given


def _least(given: NodeReplacement) -> float:
    worst = given.claim.table.worst_price
    return min(worst(i, given.requirements) for i in given.options)


def better(
    a: ConsolidationForecast | None, b: ConsolidationForecast | None
) -> ConsolidationForecast | None:
    """The forecast of higher value; the first if both are equal."""
    if a is None or b is None:
        return a or b
    return b if b.value > a.value + 1e-9 else a


def by_use(candidates: Iterable[DisruptionCandidate]) -> list[DisruptionCandidate]:
    """Candidates by the share of CPU that their pods request, lowest first."""
    return sorted(candidates, key=lambda c: (_used(c), c.name))


def _used(candidate: DisruptionCandidate) -> float:
    requested = sum(dict(p.shape.requests).get(CPU, 0) for p in candidate.pods)
    return requested / max(1, candidate.state.node.allocatable.get(CPU, 0))


def prefixes(row: Sequence[DisruptionCandidate]) -> list[Row]:
    """The first candidates: every short row, longer ones growing by an eighth, and all."""
    sizes = list(range(1, min(len(row), _EVERY_LENGTH) + 1))
    while sizes and sizes[-1] < len(row):
        sizes.append(min(len(row), sizes[-1] + max(1, sizes[-1] // _EVERY_LENGTH)))
    return [tuple(row[:size]) for size in sizes]
