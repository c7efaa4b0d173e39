"""The methods of consolidation in the order in which they are tried, with candidates. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from moxwell.scheduling.disruption.balanced import command_scores, pool_totals
from moxwell.scheduling.disruption.budgets import DisruptionReason, disruption_allowances
from moxwell.scheduling.disruption.candidates import (
    CandidateFilter,
    DisruptionBlocked,
    DisruptionCandidate,
    all_candidates,
    by_savings,
    consolidation_block,
    drift_block,
    eligible,
    emptiness_block,
    static_drift_block,
)
from moxwell.scheduling.disruption.cluster_state import DisruptionSnapshot
from moxwell.scheduling.disruption.commands import DisruptionCommand
from moxwell.scheduling.disruption.consolidation import Consolidator
from moxwell.scheduling.disruption.drift import drift, static_drift
from moxwell.scheduling.disruption.search import (
    ConsolidationForecast,
    ConsolidationSearch,
    SearchOptions,
    better,
)
from moxwell.scheduling.disruption.simulation import DisruptionSimulator
from moxwell.scheduling.packing.cluster import SolverOptions


class ConsolidationMethod(StrEnum):
    """The ways to consolidate, in the order in which they are tried."""

    EMPTINESS = "emptiness"
    MULTI = "multi"
    SINGLE = "single"

    @property
    def reason(self) -> DisruptionReason:
        empty = self is ConsolidationMethod.EMPTINESS
        return DisruptionReason.EMPTY if empty else DisruptionReason.UNDERUTILIZED

    @property
    def block(self) -> CandidateFilter:
        return emptiness_block if self is ConsolidationMethod.EMPTINESS else consolidation_block


@dataclass(frozen=True, slots=True)
class MethodOutcome:
    """
    What a method considered, what the budgets allowed, and what it decided.

    ``blocked`` says of nodes, by name, why the method did not take them.
    """

    method: ConsolidationMethod
    candidates: tuple[DisruptionCandidate, ...]
    allowances: Mapping[str, int]
    command: DisruptionCommand | None = None
    blocked: Mapping[str, DisruptionBlocked] = field(default_factory=dict)


_EMPTINESS, _SINGLE = ConsolidationMethod.EMPTINESS, ConsolidationMethod.SINGLE


class ConsolidationRefusals(NamedTuple):
    """Why nodes, by name, are not consolidated; ``low`` are commands that Balanced refuses."""

    reasons: dict[str, str]
    low: tuple[DisruptionCommand, ...]


def _sentence(message: str) -> str:
    return message[:1].upper() + message[1:]


class ConsolidationPass:
    """Runs the methods of disruption on one snapshot."""

    def __init__(self, snapshot: DisruptionSnapshot, options: SolverOptions | None = None) -> None:
        self._snapshot = snapshot
        self._candidates = all_candidates(snapshot)
        self._totals = pool_totals(snapshot, self._candidates)
        self.simulator = DisruptionSimulator(snapshot, options)
        self.consolidator = Consolidator(self.simulator, self._totals)
        self._outcomes: dict[ConsolidationMethod, MethodOutcome] = {}

    def outcome(self, method: ConsolidationMethod) -> MethodOutcome:
        """The decision of one method."""
        if method not in self._outcomes:
            self._outcomes[method] = self._outcome(method)
        return self._outcomes[method]

    def _outcome(self, method: ConsolidationMethod) -> MethodOutcome:
        blocked = {c.name: why for c in self._candidates if (why := method.block(c)) is not None}
        candidates = tuple(c for c in self._candidates if c.name not in blocked)
        allowances = disruption_allowances(self._snapshot, method.reason)
        match method:
            case ConsolidationMethod.EMPTINESS:
                command = self.consolidator.emptiness(candidates, allowances)
            case ConsolidationMethod.MULTI:
                command = self.consolidator.multi_node(candidates, allowances)
            case ConsolidationMethod.SINGLE:
                found = self.consolidator.single_node(candidates, allowances)
                command, blocked = found.command, {**blocked, **found.blocked}
        return MethodOutcome(method, candidates, allowances, command, blocked)

    def unconsolidatable(self, most: int | None = None) -> ConsolidationRefusals:
        """
        Why nodes are not consolidated, for events of that reason.

        Nodes that are left alone as intended are not among them: a node that is not empty, one
        whose ``consolidateAfter`` has not passed, those of static pools. Of the rest the removal
        is simulated, of the ``most`` that save most.
        """
        reasons: dict[str, str] = {}
        open_: list[DisruptionCandidate] = []
        for each in self._candidates:
            if not each.state.consolidatable:
                continue
            blocks = [m.block(each) for m in (_EMPTINESS, _SINGLE)]
            for block in blocks:
                if block is not None and not block.quiet:
                    reasons[each.name] = _sentence(block.message)
            if blocks[-1] is None:
                open_.append(each)
        return self._simulated_refusals(by_savings(open_)[:most], reasons)

    def _simulated_refusals(
        self, candidates: Iterable[DisruptionCandidate], reasons: dict[str, str]
    ) -> ConsolidationRefusals:
        low = []
        for each in candidates:
            found = self.consolidator.consolidate((each,))
            if isinstance(found, DisruptionBlocked):
                reasons[each.name] = _sentence(found.message)
            elif scores := command_scores(found, self._totals):
                low.append(found)
                score = min(s.score for s in scores.values())
                reasons[each.name] = f"The score {score:.2f} of policy Balanced is too low"
        return ConsolidationRefusals(reasons, tuple(low))

    def outcomes(self) -> Iterator[MethodOutcome]:
        """The decisions of all methods in order; the first with a command is carried out."""
        return map(self.outcome, ConsolidationMethod)

    def drift(self) -> DisruptionCommand | None:
        """The drifted node that is replaced next; static pools have their own method."""
        found = eligible(all_candidates(self._snapshot, eventual=True), drift_block)
        return drift(self.simulator, found, self._drift_allowances())

    def static_drift(self) -> tuple[DisruptionCommand, ...]:
        """The drifted nodes of static pools that are replaced next."""
        found = eligible(all_candidates(self._snapshot, eventual=True), static_drift_block)
        return static_drift(self._snapshot, found, self._drift_allowances())

    def _drift_allowances(self) -> dict[str, int]:
        return disruption_allowances(self._snapshot, DisruptionReason.DRIFTED)

    def optimised(self, options: SearchOptions | None = None) -> ConsolidationForecast | None:
        """The best of the search over all nodes and of Karpenter's methods; a dry run."""
        search = ConsolidationSearch(self.simulator, self._totals, options)
        multi = self.outcome(ConsolidationMethod.MULTI)
        best = search.best(multi.candidates, dict(multi.allowances))
        for command in (multi.command, self.outcome(ConsolidationMethod.SINGLE).command):
            if command is not None and (found := search.forecast(command)).value > 0:
                best = better(best, found)
        return best
