"""The next move of a command in progress. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from moxwell.api.core.nodes import Node
from moxwell.api.karpenter.nodeclaims import DISRUPTION_REASON, INITIALIZED, NodeClaim
from moxwell.controllers.karpenter.disruption.command_record import CommandRecord
from moxwell.controllers.karpenter.karpenter_conditions import is_true
from moxwell.scheduling.packing.rescheduling import DISRUPTED_TAINT
from moxwell.scheduling.taints import same_taint

TIMEOUT_SECONDS = 600.0  # until the replacements must be initialized, beyond their own timeouts


class DisruptionEvent(StrEnum):
    """Events of node claims, nodes and pools that the loop records."""

    LAUNCHING = "DisruptionLaunching"
    WAITING_READINESS = "DisruptionWaitingReadiness"
    TERMINATING = "DisruptionTerminating"
    BLOCKED = "DisruptionBlocked"
    CANDIDATE = "ConsolidationCandidate"
    REJECTED = "ConsolidationRejected"
    UNCONSOLIDATABLE = "Unconsolidatable"


@dataclass(frozen=True, slots=True)
class CommandState:
    """A command with its node claims; a replacement that does not exist is None."""

    record: CommandRecord
    candidates: tuple[NodeClaim, ...]
    nodes: tuple[Node, ...]
    replacements: Mapping[str, NodeClaim | None]
    now: datetime


@dataclass(frozen=True, slots=True)
class AwaitReplacements:
    """
    Some replacements are not initialized yet.

    ``nodes`` and ``claims`` are those that an interrupted start left without taint and reason.
    """

    missing: tuple[NodeClaim, ...]
    nodes: tuple[Node, ...] = ()
    claims: tuple[NodeClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteCandidates:
    """Every replacement is initialized: delete the nodes."""

    claims: tuple[NodeClaim, ...]


@dataclass(frozen=True, slots=True)
class UndoCommand:
    """Give the nodes back, and delete replacements that no pod can run on yet."""

    why: str
    claims: tuple[NodeClaim, ...]
    nodes: tuple[Node, ...]
    replacements: tuple[NodeClaim, ...]


CommandMove = AwaitReplacements | DeleteCandidates | UndoCommand


def plan_command(state: CommandState, timeout_seconds: float = TIMEOUT_SECONDS) -> CommandMove:
    """
    Wait for the replacements, delete the nodes, or undo.

    A replacement that is missing was never created, or its launch failed.
    """
    lost = [n for n, c in sorted(state.replacements.items()) if c is None or _ends(c)]
    if lost:
        return _undo(state, f"the replacement {', '.join(lost)} does not exist")
    waiting = tuple(
        c for c in state.replacements.values() if c is not None and not is_true(c, INITIALIZED)
    )
    if not waiting:
        return DeleteCandidates(tuple(c for c in state.candidates if not _ends(c)))
    if (state.now - state.record.created).total_seconds() > timeout_seconds:
        return _undo(state, f"no replacement was ready within {timeout_seconds:.0f} seconds")
    return AwaitReplacements(
        waiting,
        tuple(n for n in state.nodes if not is_tainted(n)),
        tuple(c for c in state.candidates if not is_true(c, DISRUPTION_REASON)),
    )


def is_tainted(node: Node) -> bool:
    """Whether the node has the taint of disrupted nodes."""
    return any(same_taint(t, DISRUPTED_TAINT) for t in node.spec.taints)


def _ends(claim: NodeClaim) -> bool:
    return claim.metadata.deletion_timestamp is not None


def _undo(state: CommandState, why: str) -> UndoCommand:
    staying = tuple(c for c in state.candidates if not _ends(c))
    ids = {c.status.provider_id for c in staying}
    return UndoCommand(
        why,
        staying,
        tuple(n for n in state.nodes if n.spec.provider_id in ids),
        tuple(
            c
            for c in state.replacements.values()
            if c is not None and not _ends(c) and not is_true(c, INITIALIZED)
        ),
    )
