"""
``karpenter.interruption``: the loop that deletes spot machines to free their capacity.

The annotation ``moxwell.dev/spot-interrupted`` is the record: it is written before the node claim
is deleted, so that a claim that has it ends, also after a restart. The rest is the termination of
any node claim: taint, eviction in tiers, PodDisruptionBudgets, until the deadline.
"""

from collections.abc import Coroutine
from typing import Any

import msgspec
import structlog

from moxwell.api.core.nodes import Node
from moxwell.api.karpenter.nodeclaims import DISRUPTION_REASON, NodeClaim
from moxwell.clock import Clock
from moxwell.controllers.karpenter.claim_metrics import ClaimMetrics
from moxwell.controllers.karpenter.interruption.plan import (
    METRIC_REASON,
    SPOT_INTERRUPTED,
    InterruptionSettings,
    interrupted_note,
    recorded,
)
from moxwell.controllers.karpenter.karpenter_conditions import condition, is_true
from moxwell.controllers.karpenter.lookup import ClaimLookup
from moxwell.controllers.karpenter.names import INTERRUPTED
from moxwell.controllers.karpenter.provider import InstanceReader
from moxwell.controllers.karpenter.state.snapshots import ClusterState
from moxwell.errors import MoxwellError
from moxwell.kube.client import Kube
from moxwell.runtime.events import Recorder
from moxwell.runtime.status import StatusWriter
from moxwell.runtime.writes import Delete

NAME = "karpenter.interruption"
log = structlog.get_logger(__name__)


class InterruptionLoop:
    """Interrupts spot machines of one cluster."""

    def __init__(
        self,
        kube: Kube,
        state: ClusterState,
        provider: InstanceReader,
        lookup: ClaimLookup,
        metrics: ClaimMetrics,
        clock: Clock,
        recorder: Recorder,
        settings: InterruptionSettings | None = None,
    ) -> None:
        self._kube, self._state, self._provider = kube, state, provider
        self._lookup, self._metrics = lookup, metrics
        self._clock, self._recorder = clock, recorder
        self._settings = settings or InterruptionSettings()
        self._status = StatusWriter(kube, clock)

    async def run(self) -> None:
        """Look and interrupt until cancelled."""
        while True:
            await self._clock.sleep(self._settings.interval_seconds)
            try:
                await self.run_pass()
            except MoxwellError as error:
                log.warning("interruption failed", reason=error.reason, error=str(error))

    async def run_pass(self) -> None:
        """
        Continue what is recorded, then decide about other spot machines.

        A claim that cannot be written keeps no other one.
        """
        if not self._state.synced:
            return
        claims = {c.uid: c for c in self._lookup.claims.list()}
        for claim in claims.values():
            if INTERRUPTED in claim.metadata.annotations:
                await self._attempt(self._end(claim), claim)
        for found in await self._provider.interruptions(self._state.needs.current()):
            chosen = claims.get(found.guest.claim)
            if chosen is not None and not chosen.deleting:
                await self._attempt(self._interrupt(chosen, found.why), chosen)

    async def _attempt(self, work: Coroutine[Any, Any, None], claim: NodeClaim) -> None:
        try:
            await work
        except MoxwellError as error:
            log.warning(
                "interruption failed", nodeclaim=claim.name, reason=error.reason, error=str(error)
            )

    async def _interrupt(self, claim: NodeClaim, why: str) -> None:
        record = recorded(claim, why, self._clock.now(), self._settings.grace_seconds)
        await record.perform(self._kube)
        live = await self._kube.find(NodeClaim, claim.name)
        if live is not None and live.uid == claim.uid:
            await self._end(live)

    async def _end(self, claim: NodeClaim) -> None:
        """Delete a recorded claim and say why, as far as that is not done."""
        why = claim.metadata.annotations[INTERRUPTED]
        if not claim.deleting:
            await Delete(NodeClaim, claim.name, uid=claim.uid).perform(self._kube)
            self._metrics.claim_disrupted(METRIC_REASON, claim.metadata.labels)
            self._note(claim, why)
            log.info("spot machine interrupted", nodeclaim=claim.name, why=why)
        if not is_true(claim, DISRUPTION_REASON):
            await self._set_reason(claim)

    async def _set_reason(self, claim: NodeClaim) -> None:
        live = await self._kube.find(NodeClaim, claim.name)
        if live is not None and live.uid == claim.uid:
            found = condition(DISRUPTION_REASON, "True", SPOT_INTERRUPTED, SPOT_INTERRUPTED)
            await self._status.write(NodeClaim, live, {"conditions": [msgspec.to_builtins(found)]})

    def _note(self, claim: NodeClaim, why: str) -> None:
        self._recorder.note(NAME, NodeClaim, claim, interrupted_note("node claim", why))
        for node in self._lookup.nodes_of(claim.status.provider_id):
            self._recorder.note(NAME, Node, node, interrupted_note("node", why))
