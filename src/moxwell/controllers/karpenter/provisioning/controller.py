"""
``karpenter.provisioner``: the loop that batches pending pods and creates node claims for them.

It is no reconciler of one kind, because one decision concerns all pending pods at once. A pass
reads the caches, decides (a pure function) and creates the node claims. A node claim records its
pods, so that a pass after a restart knows which pods wait for it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.clock import Clock
from moxwell.controllers.karpenter.claim_template import MIN_VALUES_RELAXED
from moxwell.controllers.karpenter.decisions import (
    DecisionRunner,
    DecisionTimeout,
    ThreadDecisions,
)
from moxwell.controllers.karpenter.options import IDLE_SECONDS, MOST_SECONDS, PackingMode
from moxwell.controllers.karpenter.pod_decisions import PodDecisionTimes
from moxwell.controllers.karpenter.provisioning.batcher import Batcher
from moxwell.controllers.karpenter.provisioning.plan import (
    ProvisioningEvent,
    ProvisioningPlan,
    explain,
    nominated_note,
    plan_provisioning,
    real,
)
from moxwell.controllers.karpenter.provisioning_metrics import ProvisioningMetrics
from moxwell.controllers.karpenter.state.objects import PODS
from moxwell.controllers.karpenter.state.pods import is_provisionable
from moxwell.controllers.karpenter.state.snapshots import ClusterState, ScaledClusterView
from moxwell.errors import Missing, MoxwellError
from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists
from moxwell.runtime.events import Recorder
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note
from moxwell.scheduling.packing.cluster import SolverOptions
from moxwell.scheduling.packing.explain import PodExplanation
from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.well_known_labels import NODE_POOL

NAME = "karpenter.provisioner"
PROVISIONED = "provisioned"
RECHECK_SECONDS = 10.0
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ProvisioningSettings:
    """How pods are collected and packed."""

    mode: PackingMode = PackingMode.OPTIMISE
    options: SolverOptions = field(default_factory=SolverOptions)
    idle_seconds: float = IDLE_SECONDS
    most_seconds: float = MOST_SECONDS


class Provisioner:
    """Creates node claims for pods without a node."""

    def __init__(
        self,
        kube: Kube,
        state: ClusterState,
        clock: Clock,
        recorder: Recorder,
        metrics: ProvisioningMetrics,
        settings: ProvisioningSettings | None = None,
        decisions: DecisionRunner | None = None,
        times: PodDecisionTimes | None = None,
    ) -> None:
        self._kube, self._state, self._clock = kube, state, clock
        self._times = times or PodDecisionTimes(clock)
        self._recorder, self._metrics = recorder, metrics
        given = self._settings = settings or ProvisioningSettings()
        self._decisions = decisions or ThreadDecisions()
        self._batcher = Batcher(clock, idle=given.idle_seconds, most=given.most_seconds)
        state.cluster.pods.subscribe(self._pod_changed)

    def trigger(self, uid: str) -> None:
        """Decide soon, because of a pod or a node that leaves."""
        self._batcher.trigger(uid)

    async def run(self) -> None:
        """Batch, decide and create until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recheck())
            while True:
                await self._batcher.wait()
                try:
                    await self.run_pass()
                except MoxwellError as error:
                    log.warning("provisioning failed", reason=error.reason, error=str(error))

    async def run_pass(self) -> ProvisioningPlan | None:
        """One scheduling pass; None while the caches are not filled."""
        if not self._state.synced or not self._state.has_work():
            return None
        view = await self._state.view(advance=True)
        if not view.pending and not view.ignored:
            self._state.needs.found(())
            self._record_buffers(ProvisioningPlan())
            return None
        began = self._clock.monotonic()
        plan = await self._decided(view)
        self._metrics.pass_finished(
            self._clock.monotonic() - began,
            plan.unschedulable,
            len(view.ignored),
            len(view.cluster.nodes),
        )
        self._note_times(view, plan)
        await self._perform(plan)
        if view.deferred:
            self._note_deferred(view)
        return plan

    async def _decided(self, view: ScaledClusterView) -> ProvisioningPlan:
        """The plan for a view; a pass that takes too long makes the next ones smaller."""
        given, limit = self._settings, self._state.limit
        decide = partial(plan_provisioning, view, given.mode, given.options)
        try:
            plan = await self._decisions.run(decide, view.size)
        except DecisionTimeout:
            limit.too_long(len(view.pending))
            self._note_pools(view, f"A pass about {len(view.pending)} pods took too long")
            raise
        limit.finished()
        return plan

    def _note_times(self, view: ScaledClusterView, plan: ProvisioningPlan) -> None:
        """Remember when pods were decided about; those of leaving nodes are bound already."""
        reason = ProvisioningEvent.FAILED_SCHEDULING
        failed = frozenset(n.pod.key for n in plan.notes if n.note.reason == reason)
        pods = (p.key for p in real(view.pending) if not p.node_name)
        self._metrics.pods_decided(self._times.decided(pods, failed))

    def _note_deferred(self, view: ScaledClusterView) -> None:
        decided = len(view.pending)
        text = f"{len(view.deferred)} pending pods wait: a pass decides about {decided} at a time"
        self._note_pools(view, text)

    def _note_pools(self, view: ScaledClusterView, text: str) -> None:
        note = Note(ProvisioningEvent.BATCH_LIMITED, text, "Warning")
        for pool in view.pools.values():
            self._recorder.note(NAME, NodePool, pool, note)

    def _record_buffers(self, plan: ProvisioningPlan) -> None:
        if self._state.buffers is not None:
            self._state.buffers.placed(plan.buffers, plan.buffer_nodes)

    async def explain(self, pod: Key) -> PodExplanation:
        """What would be decided about a pod now, and why."""
        given, view = self._settings, await self._state.view()
        asked = partial(explain, view, pod.namespace, pod.name, given.mode, given.options)
        found = await self._decisions.run(asked, view.size)
        if found is None:
            raise Missing(f"no pod {pod} runs or waits for a node")
        return found

    async def _perform(self, plan: ProvisioningPlan) -> None:
        self._record_buffers(plan)
        self._state.needs.found(plan.needs)
        self._state.nominations.nominate(plan.nominated)
        for each in plan.notes:
            self._note(each.pod, each.note)
        for claim, pods in plan.claims:
            await self._create(claim, pods)

    async def _create(self, claim: NodeClaim, pods: tuple[PodDemand, ...]) -> None:
        try:
            made = await self._kube.create(claim)
        except AlreadyExists:
            log.info("node claim exists already", nodeclaim=claim.metadata.name)
            return
        self._state.remember(made)
        pool = claim.metadata.labels[NODE_POOL]
        relaxed = claim.metadata.annotations.get(MIN_VALUES_RELAXED) == "true"
        self._metrics.claim_created(pool, PROVISIONED, relaxed=relaxed)
        log.info("node claim created", nodeclaim=made.metadata.name, pods=len(pods))
        for pod in pods:
            self._note(pod, nominated_note(made.metadata.name))

    def _note(self, pod: PodDemand, note: Note) -> None:
        meta = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        self._recorder.note(NAME, PODS, {"metadata": meta}, note)

    def _pod_changed(self, before: Any, after: Mapping[str, Any] | None, listed: bool) -> None:
        if after is not None and is_provisionable(after):
            meta = after["metadata"]
            self._times.seen(f"{meta.get('namespace') or 'default'}/{meta['name']}")
            self._batcher.trigger(str(after["metadata"]["uid"]))

    async def _recheck(self) -> None:
        """Decide again about what an earlier pass could not place, and about leaving nodes."""
        while True:
            await self._clock.sleep(RECHECK_SECONDS)
            self._batcher.trigger("recheck")
