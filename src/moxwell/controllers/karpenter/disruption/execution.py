"""Carries out, ends and undoes commands; every write may be repeated."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import structlog

from moxwell.api.core.nodes import Node
from moxwell.api.karpenter.nodeclaims import DISRUPTION_REASON, NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.clock import Clock
from moxwell.controllers.karpenter.claim_metrics import ClaimMetrics
from moxwell.controllers.karpenter.claim_template import (
    claim_name,
    replacement_claim,
    static_claim,
)
from moxwell.controllers.karpenter.disruption.command_record import CommandRecord, command_id
from moxwell.controllers.karpenter.disruption.plan import (
    AwaitReplacements,
    CommandMove,
    DeleteCandidates,
    DisruptionEvent,
    UndoCommand,
    is_tainted,
)
from moxwell.controllers.karpenter.disruption_metrics import DisruptionMetrics
from moxwell.controllers.karpenter.karpenter_conditions import condition
from moxwell.controllers.karpenter.names import COMMAND, REPLACES
from moxwell.controllers.karpenter.provisioning_metrics import ProvisioningMetrics
from moxwell.kube.client import Kube
from moxwell.kube.errors import NotFound
from moxwell.runtime.events import Recorder
from moxwell.runtime.reconciler import Note
from moxwell.runtime.status import StatusWriter
from moxwell.runtime.writes import Create, Delete, Merge
from moxwell.scheduling.disruption.commands import DisruptionCommand, DisruptionDecision
from moxwell.scheduling.packing.host_ledger import planned_slots
from moxwell.scheduling.packing.rescheduling import DISRUPTED_TAINT
from moxwell.scheduling.taints import same_taint
from moxwell.scheduling.well_known_labels import NODE_POOL

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NewCommand:
    """A command to start: its record, what it deletes and what it creates."""

    record: CommandRecord
    claims: tuple[NodeClaim, ...]
    nodes: tuple[Node, ...]
    replacements: tuple[NodeClaim, ...]
    decision: str


def new_command(
    command: DisruptionCommand,
    method: str,
    reason: str,
    claims: tuple[NodeClaim, ...],
    nodes: tuple[Node, ...],
    pools: Mapping[str, NodePool],
    now: datetime,
) -> NewCommand:
    """A command with the names of its replacements, which follow from its id. Pure."""
    id_ = command_id(claims, now)
    marks = {REPLACES: id_}
    made = []
    slots = planned_slots(r.demand(n) for n, r in enumerate(command.replacements))
    for number, (each, slot) in enumerate(zip(command.replacements, slots, strict=True)):
        pool = pools[each.claim.pool]
        name = claim_name(pool.metadata.name, [id_], [str(number)])
        made.append(replacement_claim(pool, each, name, marks, slot))
    if command.static is not None:
        pool = pools[command.static.pool]
        made.append(static_claim(pool, claim_name(pool.metadata.name, [id_]), marks))
    record = CommandRecord(
        id=id_,
        reason=reason,
        method=method,
        created=now,
        candidates=tuple(sorted(c.metadata.name for c in claims)),
        replacements=tuple(c.metadata.name for c in made),
    )
    return NewCommand(record, claims, nodes, tuple(made), command.decision)


def tainted(node: Node) -> Merge:
    """Keep pods away from a node."""
    kept = [t for t in node.spec.taints if t.key != DISRUPTED_TAINT.key]
    return _taints(node, [*kept, DISRUPTED_TAINT])


def untainted(node: Node) -> Merge | None:
    """Let pods return to a node; None if nothing keeps them away."""
    if not is_tainted(node):
        return None
    return _taints(node, [t for t in node.spec.taints if not same_taint(t, DISRUPTED_TAINT)])


def _taints(node: Node, taints: Iterable[Any]) -> Merge:
    listed = [msgspec.to_builtins(t) for t in taints]
    change = {
        "metadata": {"resourceVersion": node.metadata.resource_version},
        "spec": {"taints": listed or None},
    }
    return Merge(Node, node.metadata.name, change)


class CommandExecution:
    """Writes what commands need to the scaled cluster."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        recorder: Recorder,
        metrics: DisruptionMetrics,
        claim_metrics: ClaimMetrics,
        provisioning: ProvisioningMetrics,
        name: str,
    ) -> None:
        self._kube, self._recorder, self._name = kube, recorder, name
        self._metrics, self._claim_metrics = metrics, claim_metrics
        self._provisioning = provisioning
        self._status = StatusWriter(kube, clock)

    async def start(self, new: NewCommand) -> None:
        """
        Record the command, create the replacements, taint the nodes.

        The provisioner makes nodes for the pods of tainted nodes that no replacement expects, so
        the replacements come first.
        """
        record = new.record
        for claim in new.claims:
            change = {"metadata": {"annotations": {COMMAND: record.encoded()}}}
            await Merge(NodeClaim, claim.metadata.name, change).perform(self._kube)
        for made in new.replacements:
            await Create(made).perform(self._kube)
            pool = made.metadata.labels[NODE_POOL]
            self._provisioning.claim_created(pool, record.reason.lower())
        await self._mark(new.nodes, new.claims, record.reason)
        pools = [c.metadata.labels.get(NODE_POOL, "") for c in new.claims]
        self._metrics.command_started(pools, new.decision, record.reason, record.method)
        log.info(
            "disrupting nodes",
            reason=record.reason,
            method=record.method,
            node_claims=list(record.candidates),
            replacements=list(record.replacements),
        )

    async def _mark(self, nodes: Iterable[Node], claims: Iterable[NodeClaim], reason: str) -> None:
        """Taint the nodes, as they are now, and say why on their node claims."""
        for node in nodes:
            live = await self._kube.find(Node, node.metadata.name)
            if live is not None and not is_tainted(live):
                await tainted(live).perform(self._kube)
        for claim in claims:
            await self._set_reason(claim, reason)

    async def _set_reason(self, claim: NodeClaim, reason: str) -> None:
        live = await self._kube.find(NodeClaim, claim.metadata.name)
        if live is not None:
            found = condition(DISRUPTION_REASON, "True", reason, reason)
            await self._status.write(NodeClaim, live, {"conditions": [msgspec.to_builtins(found)]})

    async def perform(self, record: CommandRecord, move: CommandMove) -> None:
        """Execute the next move of a command."""
        match move:
            case AwaitReplacements():
                await self._mark(move.nodes, move.claims, record.reason)
                for claim in move.missing:
                    self._note_launch(claim, record.reason)
            case DeleteCandidates():
                for claim in move.claims:
                    await self._delete(claim, record.reason)
            case UndoCommand():
                await self._undo(record, move)

    def _note_launch(self, claim: NodeClaim, reason: str) -> None:
        launching = Note(DisruptionEvent.LAUNCHING, f"Launching NodeClaim: {reason}")
        waiting = Note(
            DisruptionEvent.WAITING_READINESS, "Waiting on readiness to continue disruption"
        )
        for note in (launching, waiting):
            self._recorder.note(self._name, NodeClaim, claim, note)

    async def _delete(self, claim: NodeClaim, reason: str) -> None:
        meta = claim.metadata
        await Delete(NodeClaim, meta.name, uid=meta.uid).perform(self._kube)
        self._claim_metrics.claim_disrupted(reason.lower(), meta.labels)
        note = Note(DisruptionEvent.TERMINATING, f"Disrupting NodeClaim: {reason}")
        self._recorder.note(self._name, NodeClaim, claim, note)

    async def _undo(self, record: CommandRecord, move: UndoCommand) -> None:
        log.warning("disruption undone", why=move.why, node_claims=list(record.candidates))
        for made in move.replacements:
            if made.metadata.annotations.get(REPLACES) == record.id:
                await Delete(NodeClaim, made.metadata.name, uid=made.metadata.uid).perform(
                    self._kube
                )
        for node in move.nodes:
            await self.give_back(node)
        for claim in move.claims:
            await self.forget(claim)
        decision = DisruptionDecision.REPLACE if record.replacements else DisruptionDecision.DELETE
        self._metrics.command_undone(decision, record.reason, record.method)

    async def give_back(self, node: Node) -> None:
        """Remove the taint of a node that is not disrupted any more."""
        live = await self._kube.find(Node, node.metadata.name)
        write = untainted(live) if live is not None else None
        if write is not None:
            await write.perform(self._kube)

    async def forget(self, claim: NodeClaim) -> None:
        """Remove the record and the reason of a command from a node claim."""
        change = {"metadata": {"annotations": {COMMAND: None}}}
        try:
            left = await self._kube.merge(NodeClaim, claim.metadata.name, change)
        except NotFound:
            return
        nothing: dict[str, Any] = {"conditions": []}
        await self._status.write(NodeClaim, left, nothing, owns=(DISRUPTION_REASON,))
