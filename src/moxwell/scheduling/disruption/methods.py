"""The methods of consolidation in the order in which they are tried, with candidates. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from moxwell.scheduling.disruption.balanced import pool_totals
from moxwell.scheduling.disruption.budgets import DisruptionReason, disruption_allowances
from moxwell.scheduling.disruption.candidates import (
    CandidateFilter,
    DisruptionCandidate,
    all_candidates,
    consolidation_block,
    eligible,
    emptiness_block,
)
from moxwell.scheduling.disruption.cluster_state import DisruptionSnapshot
from moxwell.scheduling.disruption.commands import DisruptionCommand
from moxwell.scheduling.disruption.consolidation import Consolidator
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
    """What a method considered, what the budgets allowed, and what it decided."""

    method: ConsolidationMethod
    candidates: tuple[DisruptionCandidate, ...]
    allowances: Mapping[str, int]
    command: DisruptionCommand | None = None


class ConsolidationPass:
    """Runs the methods of consolidation on one snapshot."""

    def __init__(self, snapshot: DisruptionSnapshot, options: SolverOptions | None = None) -> None:
        self._snapshot = snapshot
        self._candidates = all_candidates(snapshot)
        self._totals = pool_totals(snapshot, self._candidates)
        self.simulator = DisruptionSimulator(snapshot, options)
        self.consolidator = Consolidator(self.simulator, self._totals)

    def outcome(self, method: ConsolidationMethod) -> MethodOutcome:
        """The decision of one method."""
        candidates = eligible(self._candidates, method.block)
        allowances = disruption_allowances(self._snapshot, method.reason)
        command = self._command(method, candidates, allowances)
        return MethodOutcome(method, candidates, allowances, command)

    def _command(
        self,
        method: ConsolidationMethod,
        candidates: tuple[DisruptionCandidate, ...],
        allowances: dict[str, int],
    ) -> DisruptionCommand | None:
        match method:
            case ConsolidationMethod.EMPTINESS:
                return self.consolidator.emptiness(candidates, allowances)
            case ConsolidationMethod.MULTI:
                return self.consolidator.multi_node(candidates, allowances)
        return self.consolidator.single_node(candidates, allowances)

    def outcomes(self) -> Iterator[MethodOutcome]:
        """The decisions of all methods in order; the first with a command is carried out."""
        return map(self.outcome, ConsolidationMethod)
