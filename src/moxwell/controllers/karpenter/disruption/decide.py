"""
Which nodes are disrupted next, by Karpenter's methods in Karpenter's order. Pure.

In ``optimise`` mode a search over all nodes takes the place of multi-node and single-node
consolidation; it includes them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from moxwell.scheduling.disruption.balanced import command_scores, pool_totals
from moxwell.scheduling.disruption.budgets import DisruptionReason
from moxwell.scheduling.disruption.candidates import (
    all_candidates,
    eligible,
)
from moxwell.scheduling.disruption.cluster_state import BALANCED, DisruptionSnapshot
from moxwell.scheduling.disruption.commands import DisruptionCommand
from moxwell.scheduling.disruption.methods import ConsolidationMethod, ConsolidationPass
from moxwell.scheduling.disruption.validation import (
    CommandRejected,
    ValidationFailure,
    validated,
)
from moxwell.scheduling.packing.cluster import SolverOptions

MOST_EXPLAINED = 50  # nodes of a pass whose removal is simulated only to say why not


class DisruptionMethod(StrEnum):
    """The methods, as metrics name them."""

    EMPTINESS = "empty"
    STATIC_DRIFT = "static_drift"
    DRIFT = "drift"
    MULTI = "multi"
    SINGLE = "single"
    SEARCH = "search"

    @property
    def reason(self) -> DisruptionReason:
        match self:
            case DisruptionMethod.EMPTINESS:
                return DisruptionReason.EMPTY
            case DisruptionMethod.STATIC_DRIFT | DisruptionMethod.DRIFT:
                return DisruptionReason.DRIFTED
        return DisruptionReason.UNDERUTILIZED

    @property
    def is_validated(self) -> bool:
        """Whether the decision must hold for some time."""
        return self.reason is not DisruptionReason.DRIFTED


@dataclass(frozen=True, slots=True)
class DisruptionDecided:
    """Commands of one method; only static drift has more than one."""

    method: DisruptionMethod
    commands: tuple[DisruptionCommand, ...]


_CONSOLIDATION = {
    DisruptionMethod.EMPTINESS: ConsolidationMethod.EMPTINESS,
    DisruptionMethod.MULTI: ConsolidationMethod.MULTI,
    DisruptionMethod.SINGLE: ConsolidationMethod.SINGLE,
}


class ConsolidationMove(NamedTuple):
    """A move that the Balanced policy judged."""

    pool: str
    policy: str
    score: float
    approved: bool


@dataclass(frozen=True, slots=True)
class DisruptionRound:
    """
    What a pass found.

    If there is nothing to do, ``unconsolidatable`` says why for some nodes.
    """

    decided: DisruptionDecided | None = None
    unconsolidatable: Mapping[str, str] = field(default_factory=dict)
    moves: tuple[ConsolidationMove, ...] = ()


def decided_round(
    snapshot: DisruptionSnapshot, options: SolverOptions, *, optimise: bool, static: bool = True
) -> DisruptionRound:
    """The first method that has something to do, or why there is nothing to do."""
    run = ConsolidationPass(snapshot, options)
    for method in _methods(optimise, static):
        if commands := _commands(run, snapshot, method):
            found = DisruptionDecided(method, commands)
            return DisruptionRound(found, {}, _moves(snapshot, commands))
    reasons, low = run.unconsolidatable(MOST_EXPLAINED)
    return DisruptionRound(None, reasons, _moves(snapshot, low, approved=False))


def decide(
    snapshot: DisruptionSnapshot, options: SolverOptions, *, optimise: bool
) -> DisruptionDecided | None:
    """The first method that has something to do."""
    return decided_round(snapshot, options, optimise=optimise).decided


def _methods(optimise: bool, static: bool) -> tuple[DisruptionMethod, ...]:
    drift = (DisruptionMethod.STATIC_DRIFT,) if static else ()
    first = (DisruptionMethod.EMPTINESS, *drift, DisruptionMethod.DRIFT)
    if optimise:
        return (*first, DisruptionMethod.SEARCH)
    return (*first, DisruptionMethod.MULTI, DisruptionMethod.SINGLE)


def _moves(
    snapshot: DisruptionSnapshot, commands: Iterable[DisruptionCommand], *, approved: bool = True
) -> tuple[ConsolidationMove, ...]:
    """The moves of commands that concern pools with the policy Balanced."""
    totals = pool_totals(snapshot, all_candidates(snapshot))
    return tuple(
        ConsolidationMove(pool, BALANCED, each.score, approved)
        for command in commands
        for pool, each in sorted(command_scores(command, totals).items())
    )


def _commands(
    run: ConsolidationPass, snapshot: DisruptionSnapshot, method: DisruptionMethod
) -> tuple[DisruptionCommand, ...]:
    match method:
        case DisruptionMethod.STATIC_DRIFT:
            return run.static_drift()
        case DisruptionMethod.DRIFT:
            found = run.drift()
        case DisruptionMethod.SEARCH:
            found = _searched(run, snapshot)
        case _:
            found = run.outcome(_CONSOLIDATION[method]).command
    return (found,) if found is not None and is_launchable(found) else ()


def is_launchable(command: DisruptionCommand) -> bool:
    """
    Whether every replacement has an offering.

    Karpenter replaces on-demand by spot capacity if the pool allows both, offered or not.
    """
    return all(
        any(r.claim.table.launchable(i, r.requirements) for i in r.options)
        for r in command.replacements
    )


def _searched(run: ConsolidationPass, snapshot: DisruptionSnapshot) -> DisruptionCommand | None:
    if not eligible(all_candidates(snapshot), ConsolidationMethod.MULTI.block):
        return None
    found = run.optimised()
    return found.command if found is not None else None


def confirm(
    snapshot: DisruptionSnapshot, given: DisruptionDecided, options: SolverOptions
) -> DisruptionCommand | CommandRejected:
    """The command, if it holds in a newer snapshot."""
    run, (command,) = ConsolidationPass(snapshot, options), given.commands
    if given.method is not DisruptionMethod.SEARCH:
        return validated(run.simulator, _CONSOLIDATION[given.method], command)
    again = _searched(run, snapshot)
    if again is not None and _names(again) == _names(command) and is_launchable(again):
        return again
    return CommandRejected(ValidationFailure.CHURN, "the best command is another one by now")


def _names(command: DisruptionCommand) -> frozenset[str]:
    return frozenset(c.name for c in command.candidates)
