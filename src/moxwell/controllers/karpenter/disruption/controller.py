"""
``karpenter.disruption``: the loop that disrupts nodes.

It is no reconciler of one kind, because one decision concerns all nodes at once. A pass continues
the commands in progress and then decides about the other nodes, within what budgets leave.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

import structlog

from moxwell.api.karpenter.nodeclaims import DISRUPTION_REASON, NodeClaim
from moxwell.clock import Clock
from moxwell.controllers.karpenter.decisions import (
    DecisionRunner,
    DecisionTimeout,
    ThreadDecisions,
)
from moxwell.controllers.karpenter.disruption.command_record import (
    CommandRecord,
    record_of,
    records_of,
)
from moxwell.controllers.karpenter.disruption.decide import (
    DisruptionDecided,
    confirm,
    decided_round,
)
from moxwell.controllers.karpenter.disruption.execution import (
    CommandExecution,
    new_command,
)
from moxwell.controllers.karpenter.disruption.plan import (
    TIMEOUT_SECONDS,
    CommandState,
    UndoCommand,
    is_tainted,
    plan_command,
)
from moxwell.controllers.karpenter.disruption.reports import DisruptionReports
from moxwell.controllers.karpenter.disruption_metrics import DisruptionMetrics
from moxwell.controllers.karpenter.karpenter_conditions import is_true
from moxwell.controllers.karpenter.lookup import ClaimLookup
from moxwell.controllers.karpenter.state.snapshots import ClusterState, DisruptionView
from moxwell.errors import MoxwellError
from moxwell.kube.client import Kube
from moxwell.runtime.events import Recorder
from moxwell.scheduling.disruption.commands import DisruptionCommand
from moxwell.scheduling.disruption.validation import CommandRejected
from moxwell.scheduling.packing.cluster import SolverOptions

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
    static: bool = True  # replace drifted nodes of pools with ``replicas``


@dataclass(frozen=True, slots=True)
class ProposedDisruption:
    """A decision that must still hold after some time; it is lost when the process ends."""

    decided: DisruptionDecided
    since: float


@dataclass(frozen=True, slots=True)
class DisruptionInsight:
    """The last results of the loop, for display: why nodes stay, and what would be saved."""

    kept: Mapping[str, str] = field(default_factory=dict)  # node claim -> why it stays
    proposal: str = ""  # the command that is checked again before it is carried out
    disrupted: frozenset[str] = frozenset()  # the nodes that the command removes
    saves: float = 0.0  # what the command saves, in prices of instance types
    prices: Mapping[str, float] = field(default_factory=dict)  # of node claims that may go


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
        decisions: DecisionRunner | None = None,
    ) -> None:
        self._kube, self._state, self._lookup, self._clock = kube, state, lookup, clock
        self._execution, self._metrics = execution, metrics
        self._reports = DisruptionReports(NAME, lookup, recorder, metrics)
        self._settings = settings or DisruptionSettings()
        self._decisions = decisions or ThreadDecisions(0)
        self._next = 0.0  # when the next decision is due
        self._proposed: ProposedDisruption | None = None
        self._started: dict[str, CommandRecord] = {}  # by node claim, until the cache shows it
        self._undone: dict[str, float] = {}  # by node claim, when

    @property
    def insight(self) -> DisruptionInsight:
        """What the last decisions found out."""
        kept, prices = self._reports.kept, self._reports.prices
        if self._proposed is None:
            return DisruptionInsight(kept, prices=prices)
        found = self._proposed.decided
        command = found.commands[0]
        names = [candidate.name for candidate in command.candidates]
        text = f"{command.decision} {', '.join(names)}: {found.method.reason}"
        return DisruptionInsight(kept, text, frozenset(names), command.savings, prices)

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
        if not self._state.synced or not self._state.knows_buffers:
            return True
        records = self._commands()
        for record in records:
            await self._continue(record)
        names = frozenset(name for r in records for name in r.candidates)
        await self._clean(names)
        if self._proposed is not None:
            return await self._validate(self._proposed, names) or bool(records)
        if self._clock.monotonic() < self._next:
            return bool(records)
        found = await self._decide(names)
        self._next = self._clock.monotonic() + (0.0 if found else self._settings.interval_seconds)
        return found or bool(records)

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

    async def _clean(self, disrupted: Collection[str]) -> None:
        """Remove taints that an interrupted command left on nodes."""
        for claim in self._lookup.claims.list():
            if claim.metadata.deletion_timestamp is not None or claim.metadata.name in disrupted:
                continue
            for node in self._lookup.nodes_of(claim.status.provider_id):
                if is_tainted(node) and node.metadata.deletion_timestamp is None:
                    await self._execution.give_back(node)
            if is_true(claim, DISRUPTION_REASON):
                await self._execution.forget(claim)

    # ---- decisions

    async def _decide(self, disrupted: Collection[str]) -> bool:
        view = await self._view(disrupted)
        given, began = self._settings, self._clock.monotonic()
        self._reports.observed(view)
        compute = partial(
            decided_round,
            view.snapshot,
            given.options,
            optimise=given.optimise,
            static=given.static,
        )
        try:
            round_ = await self._decisions.run(compute, view.size)
        except DecisionTimeout:
            self._metrics.timed_out("multi")
            raise
        found = round_.decided
        seconds = self._clock.monotonic() - began
        reason, method = (found.method.reason, found.method) if found is not None else ("", "")
        self._metrics.decided(seconds, reason, method)
        self._metrics.scored(round_.moves)
        self._reports.unconsolidatable(view, round_.unconsolidatable)
        if found is None:
            return False
        if found.method.is_validated:
            self._proposed = ProposedDisruption(found, self._clock.monotonic())
            self._reports.proposed(view, found)
        else:
            await self._start(view, found, found.commands)
        return True

    async def _validate(self, proposed: ProposedDisruption, disrupted: Collection[str]) -> bool:
        if self._clock.monotonic() - proposed.since < self._settings.validation_seconds:
            return True
        self._proposed = None
        view, given = await self._view(disrupted), proposed.decided
        compute = partial(confirm, view.snapshot, given, self._settings.options)
        result = await self._decisions.run(compute, view.size)
        if isinstance(result, CommandRejected):
            self._reports.rejected(view, given, result)
            return False
        await self._start(view, given, (result,))
        return True

    async def _view(self, disrupted: Collection[str]) -> DisruptionView:
        """The cluster; nodes that a command disrupts count as leaving, undone ones stay."""
        given, now = self._settings, self._clock.monotonic()
        self._undone = {n: t for n, t in self._undone.items() if now - t < given.retry_seconds}
        held = (*self._undone, *disrupted)
        return await self._state.disruption(
            held, leaving=disrupted, spot_to_spot=given.spot_to_spot
        )

    async def _start(
        self,
        view: DisruptionView,
        given: DisruptionDecided,
        commands: tuple[DisruptionCommand, ...],
    ) -> None:
        for command in commands:
            claims = tuple(view.claim(c.name) for c in command.candidates)
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


def _is_of(claim: NodeClaim, record: CommandRecord) -> bool:
    found = record_of(claim)
    return found is not None and found.id == record.id
