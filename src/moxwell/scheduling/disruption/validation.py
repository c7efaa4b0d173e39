"""
Whether a command still holds some time after it was decided, in a newer snapshot. Pure.

Karpenter waits 15 seconds between the decision and this check.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from moxwell.scheduling.disruption.budgets import disruption_allowances
from moxwell.scheduling.disruption.candidates import (
    DisruptionCandidate,
    all_candidates,
    eligible,
    within_allowances,
)
from moxwell.scheduling.disruption.commands import DisruptionCommand
from moxwell.scheduling.disruption.methods import ConsolidationMethod
from moxwell.scheduling.disruption.simulation import DisruptionSimulator


class ValidationFailure(StrEnum):
    """What changed since a command was decided."""

    BUDGET = "budget"
    SCHEDULING = "scheduling"
    CHURN = "churn"


@dataclass(frozen=True, slots=True)
class CommandRejected:
    """Why a command is not carried out."""

    failure: ValidationFailure
    message: str


def validated(
    simulator: DisruptionSimulator, method: ConsolidationMethod, command: DisruptionCommand
) -> DisruptionCommand | CommandRejected:
    """
    The command, if it holds in the simulator's snapshot.

    A command of emptiness keeps the nodes that are still empty and allowed; others hold as a whole.
    """
    now = _current(simulator, method, command)
    if not now or (len(now) < len(command.candidates) and not _is_emptiness(method)):
        gone = len(command.candidates) - len(now)
        return CommandRejected(ValidationFailure.CHURN, f"{gone} candidates are no longer valid")
    allowances = disruption_allowances(simulator.snapshot, method.reason)
    allowed = within_allowances(now, allowances)
    if not allowed or (len(allowed) < len(now) and not _is_emptiness(method)):
        return CommandRejected(
            ValidationFailure.BUDGET,
            "a candidate can no longer be disrupted without violating budgets",
        )
    if _is_emptiness(method):
        return DisruptionCommand(tuple(allowed))
    return _still_scheduled(simulator, command, allowed)


def _is_emptiness(method: ConsolidationMethod) -> bool:
    return method is ConsolidationMethod.EMPTINESS


def _current(
    simulator: DisruptionSimulator, method: ConsolidationMethod, command: DisruptionCommand
) -> list[DisruptionCandidate]:
    names = {c.name for c in command.candidates}
    found = eligible(all_candidates(simulator.snapshot), method.block)
    return [c for c in found if c.name in names]


def _still_scheduled(
    simulator: DisruptionSimulator,
    command: DisruptionCommand,
    candidates: Sequence[DisruptionCandidate],
) -> DisruptionCommand | CommandRejected:
    """The command, if pods need the same number of new nodes and its types still do."""
    removal = simulator.without(candidates)
    if removal.unplaced:
        return CommandRejected(ValidationFailure.SCHEDULING, removal.message)
    changed = CommandRejected(
        ValidationFailure.SCHEDULING, "scheduling simulation produced new results"
    )
    claims = removal.placement.claims
    if len(claims) != len(command.replacements):
        return changed
    possible = [{t.name for t in c.instance_types} for c in claims]
    for given in command.replacements:
        names = {t.name for t in given.instance_types}
        match = next((p for p in possible if names <= p), None)
        if match is None:
            return changed
        possible.remove(match)
    return command
