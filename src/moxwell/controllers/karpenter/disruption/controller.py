"""
``karpenter.disruption``: the loop that disrupts nodes.

It is no reconciler of one kind, because one decision concerns all nodes at once. A pass continues
the commands in progress; if there are none, it decides in a thread (the decision is pure).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import structlog

from moxwell.api.core.nodes import Node
from moxwell.api.karpenter.nodeclaims import DISRUPTION_REASON, NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.clock import Clock
from moxwell.controllers.karpenter.disruption.blocked import blocked_nodes, blocked_pools
from moxwell.controllers.karpenter.disruption.command_record import (
    CommandRecord,
    record_of,
    records_of,
)
from moxwell.controllers.karpenter.disruption.decide import (
    DisruptionDecided,
    confirm,
    decide,
)
from moxwell.controllers.karpenter.disruption.execution import (
    CommandExecution,
    new_command,
)
from moxwell.controllers.karpenter.disruption.plan import (
    TIMEOUT_SECONDS,
    CommandState,
    DisruptionEvent,
    UndoCommand,
    is_tainted,
    plan_command,
)
from moxwell.controllers.karpenter.disruption_metrics import DisruptionMetrics
from moxwell.controllers.karpenter.karpenter_conditions import is_true
from moxwell.controllers.karpenter.lookup import ClaimLookup
from moxwell.controllers.karpenter.state.snapshots import ClusterState, DisruptionView
from moxwell.errors import MoxwellError
from moxwell.kube.client import Kube
from moxwell.runtime.events import Recorder
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note
from moxwell.scheduling.disruption.budgets import DisruptionReason, disruption_allowances
from moxwell.scheduling.disruption.candidates import all_candidates
from moxwell.scheduling.disruption.commands import DisruptionCommand
from moxwell.scheduling.disruption.validation import CommandRejected
from moxwell.scheduling.packing.cluster import SolverOptions

T = TypeVar("T")
NAME = "karpenter.disruption"
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionSettings:
    """How nodes are disrupted; the times are Karpenter's."""

    optimise: bool = True
    options: SolverOptions = field(default_factory=SolverOptions)
    spot_to_spot: bool = False
    interval_seconds: float = 10.0
    command_seconds: float = 1.0
    validation_seconds: float = 15.0
    timeout_seconds: float = TIMEOUT_SECONDS
    retry_seconds: float = 300.0  # until nodes of a command that was undone are tried again
    threaded: bool = True  # False: decide on the event loop, where the process forks


@dataclass(frozen=True, slots=True)
class ProposedDisruption:
    """A decision that must still hold after some time; it is lost when the process ends."""

    decided: DisruptionDecided
    since: float


class DisruptionLoop:
    """Decides about disruption and carries commands out."""

    def __init__(
        self,
        kube: Kube,
        state: ClusterState,
        lookup: ClaimLookup,
        clock: Clock,
        recorder: Recorder,
        execution: CommandExecution,
        metrics: DisruptionMetrics,
        settings: DisruptionSettings | None = None,
    ) -> None:
        self._kube, self._state, self._lookup, self._clock = kube, state, lookup, clock
        self._recorder, self._execution, self._metrics = recorder, execution, metrics
        self._settings = settings or DisruptionSettings()
        self._proposed: ProposedDisruption | None = None
        self._started: dict[str, CommandRecord] = {}  # by node claim, until the cache shows it
        self._undone: dict[str, float] = {}  # by node claim, when
        self._blocked: dict[str, str] = {}

    async def run(self) -> None:
        """Decide and carry out until cancelled."""
        while True:
            busy = False
            try:
                busy = await self.run_pass()
            except MoxwellError as error:
                log.warning("disruption failed", reason=error.reason, error=str(error))
            given = self._settings
            await self._clock.sleep(given.command_seconds if busy else given.interval_seconds)

    async def run_pass(self) -> bool:
        """One pass; True if another is due soon."""
        if not self._state.synced:
            return True
        if records := self._commands():
            self._proposed = None
            for record in records:
                await self._continue(record)
            return True
        await self._clean()
        if self._proposed is not None:
            return await self._validate(self._proposed)
        return await self._decide()

    # ---- commands in progress

    def _commands(self) -> tuple[CommandRecord, ...]:
        """The commands in progress, those included that the cache does not show yet."""
        claims = {c.metadata.name: c for c in self._lookup.claims.list()}
        self._started = {
            name: record
            for name, record in self._started.items()
            if name in claims and record_of(claims[name]) is None
        }
        known = {r.id: r for r in (*records_of(claims.values()), *self._started.values())}
        return tuple(known[id_] for id_ in sorted(known))

    async def _continue(self, record: CommandRecord) -> None:
        state = await self._command_state(record)
        move = plan_command(state, self._settings.timeout_seconds)
        await self._execution.perform(record, move)
        if isinstance(move, UndoCommand):
            self._undone |= dict.fromkeys(record.candidates, self._clock.monotonic())
        for name in record.candidates:
            self._started.pop(name, None)

    async def _command_state(self, record: CommandRecord) -> CommandState:
        """The node claims of a command, live: a stale cache would undo it."""
        found = [await self._kube.find(NodeClaim, name) for name in record.candidates]
        own = tuple(c for c in found if c is not None and _is_of(c, record))
        nodes = tuple(n for c in own for n in self._lookup.nodes_of(c.status.provider_id))
        replacements = {n: await self._kube.find(NodeClaim, n) for n in record.replacements}
        return CommandState(record, own, nodes, replacements, self._clock.now())

    async def _clean(self) -> None:
        """Give back nodes that an interrupted command left tainted."""
        for claim in self._lookup.claims.list():
            if claim.metadata.deletion_timestamp is not None:
                continue
            for node in self._lookup.nodes_of(claim.status.provider_id):
                if is_tainted(node) and node.metadata.deletion_timestamp is None:
                    await self._execution.give_back(node)
            if is_true(claim, DISRUPTION_REASON):
                await self._execution.forget(claim)

    # ---- decisions

    async def _decide(self) -> bool:
        view = await self._view()
        given, began = self._settings, self._clock.monotonic()
        await self._report(view)
        found = await self._computed(
            partial(decide, view.snapshot, given.options, optimise=given.optimise)
        )
        seconds = self._clock.monotonic() - began
        reason, method = (found.method.reason, found.method) if found is not None else ("", "")
        self._metrics.decided(seconds, reason, method)
        if found is None:
            return False
        if found.method.is_validated:
            self._proposed = ProposedDisruption(found, self._clock.monotonic())
            self._note_candidates(view, found)
        else:
            await self._start(view, found, found.commands)
        return True

    async def _validate(self, proposed: ProposedDisruption) -> bool:
        if self._clock.monotonic() - proposed.since < self._settings.validation_seconds:
            return True
        self._proposed = None
        view, given = await self._view(), proposed.decided
        result = await self._computed(
            partial(confirm, view.snapshot, given, self._settings.options)
        )
        if isinstance(result, CommandRejected):
            self._metrics.rejected(given.method, len(given.commands[0].candidates))
            text = f"Consolidation rejected: {result.message}"
            self._note_nodes(view, given.commands[0], Note(DisruptionEvent.REJECTED, text))
            return False
        await self._start(view, given, (result,))
        return True

    async def _computed(self, compute: Callable[[], T]) -> T:
        """The result of a pure function that may take seconds."""
        return await asyncio.to_thread(compute) if self._settings.threaded else compute()

    async def _view(self) -> DisruptionView:
        given, now = self._settings, self._clock.monotonic()
        self._undone = {n: t for n, t in self._undone.items() if now - t < given.retry_seconds}
        return await self._state.disruption(tuple(self._undone), spot_to_spot=given.spot_to_spot)

    async def _start(
        self,
        view: DisruptionView,
        given: DisruptionDecided,
        commands: tuple[DisruptionCommand, ...],
    ) -> None:
        for command in commands:
            claims = tuple(_claim(view, c.name) for c in command.candidates)
            if None in claims:
                continue  # the snapshot has it from a cache that changed since
            kept = tuple(c for c in claims if c is not None)
            nodes = tuple(n for c in kept for n in self._lookup.nodes_of(c.status.provider_id))
            new = new_command(
                command,
                given.method,
                given.method.reason,
                kept,
                nodes,
                view.pools,
                self._clock.now(),
            )
            self._started |= dict.fromkeys(new.record.candidates, new.record)
            self._state.nominations.nominate(command.placement.existing)
            await self._execution.start(new)
            for made in new.replacements:
                self._state.remember(made)

    # ---- what users see

    async def _report(self, view: DisruptionView) -> None:
        """Events of what newly blocks disruption, and the gauges."""
        snapshot = view.snapshot
        allowed = {
            (pool, str(reason)): nodes
            for reason in DisruptionReason
            for pool, nodes in disruption_allowances(snapshot, reason).items()
        }
        eligible = len(all_candidates(snapshot))
        self._metrics.observed({str(r): eligible for r in DisruptionReason}, allowed)
        nodes, pools = blocked_nodes(snapshot), blocked_pools(snapshot)
        for name, text in nodes.items():
            claim = _claim(view, name)
            if claim is not None and self._blocked.get(f"node/{name}") != text:
                self._note(NodeClaim, claim, Note(DisruptionEvent.BLOCKED, text))
        for name, text in pools.items():
            pool = view.pools.get(name)
            if pool is not None and self._blocked.get(f"pool/{name}") != text:
                self._note(NodePool, pool, Note(DisruptionEvent.BLOCKED, text))
        self._blocked = {f"node/{n}": t for n, t in nodes.items()}
        self._blocked |= {f"pool/{n}": t for n, t in pools.items()}

    def _note_candidates(self, view: DisruptionView, found: DisruptionDecided) -> None:
        command = found.commands[0]
        names = ", ".join(c.name for c in command.candidates)
        text = (
            f"Consolidation candidate: {command.decision} {names} "
            f"({found.method.reason}, savings: {command.savings:.4f})"
        )
        self._note_nodes(view, command, Note(DisruptionEvent.CANDIDATE, text))

    def _note_nodes(self, view: DisruptionView, command: DisruptionCommand, note: Note) -> None:
        for each in command.candidates:
            claim = _claim(view, each.name)
            if claim is None:
                continue
            self._note(NodeClaim, claim, note)
            node = self._lookup.nodes.find(Key("", claim.status.node_name))
            if node is not None:
                self._note(Node, node, note)

    def _note(self, kind: Any, obj: Any, note: Note) -> None:
        self._recorder.note(NAME, kind, obj, note)


def _claim(view: DisruptionView, name: str) -> NodeClaim | None:
    return view.claim(name)


def _is_of(claim: NodeClaim, record: CommandRecord) -> bool:
    found = record_of(claim)
    return found is not None and found.id == record.id
