"""Adds the autoscaler to the runtime of the cluster that it scales."""

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from moxwell.api.karpenter.capacity import CapacityBuffer, NodeOverlay
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.clock import Clock
from moxwell.controllers.karpenter.batch_limit import BatchLimit
from moxwell.controllers.karpenter.buffer_store import BufferStore
from moxwell.controllers.karpenter.capacity_buffer import controller as capacity_buffer
from moxwell.controllers.karpenter.claim.setup import (
    ClaimControllers,
    ClaimSettings,
    add_claims,
)
from moxwell.controllers.karpenter.decisions import DecisionRunner, ThreadDecisions
from moxwell.controllers.karpenter.disruption.controller import (
    DisruptionLoop,
    DisruptionSettings,
)
from moxwell.controllers.karpenter.disruption.setup import add_disruption
from moxwell.controllers.karpenter.interruption import controller as interruption
from moxwell.controllers.karpenter.interruption.plan import InterruptionSettings
from moxwell.controllers.karpenter.node_metrics import NodeMetrics
from moxwell.controllers.karpenter.node_overlay import controller as node_overlay
from moxwell.controllers.karpenter.node_overlay.provider import OverlaidProvider
from moxwell.controllers.karpenter.nodepool import controller as nodepool
from moxwell.controllers.karpenter.options import (
    AutoscalerOptions,
    FeatureGates,
    PackingMode,
    solver_options,
)
from moxwell.controllers.karpenter.pod_decisions import PodDecisionTimes
from moxwell.controllers.karpenter.pod_metrics import PodDurations, PodStates
from moxwell.controllers.karpenter.provider import MachineProvider
from moxwell.controllers.karpenter.provisioning import controller as provisioning
from moxwell.controllers.karpenter.provisioning.controller import (
    Provisioner,
    ProvisioningSettings,
)
from moxwell.controllers.karpenter.provisioning_metrics import ProvisioningMetrics
from moxwell.controllers.karpenter.state.objects import ScaledCluster
from moxwell.controllers.karpenter.state.snapshots import ClusterState, QuotaReader
from moxwell.runtime.manager import Runtime
from moxwell.runtime.reconciler import Controller

KINDS = (NodePool, NodeClaim, ProxmoxNodeClass, NodeOverlay, CapacityBuffer)


@dataclass(frozen=True, slots=True)
class AutoscalerSettings:
    """Settings of all controllers of the autoscaler."""

    provisioning: ProvisioningSettings = field(default_factory=ProvisioningSettings)
    claims: ClaimSettings = field(default_factory=ClaimSettings)
    disruption: DisruptionSettings = field(default_factory=DisruptionSettings)
    gates: FeatureGates = field(default_factory=FeatureGates)
    interruption: InterruptionSettings = field(default_factory=InterruptionSettings)
    max_batch_pods: int = 0

    @classmethod
    def of(cls, options: AutoscalerOptions) -> "AutoscalerSettings":
        """The settings that follow from what a user chose."""
        solver, gates = solver_options(options), options.gates
        return cls(
            ProvisioningSettings(
                options.mode, solver, options.batch_idle_seconds, options.batch_max_seconds
            ),
            ClaimSettings(repair=gates.node_repair),
            DisruptionSettings(
                optimise=options.mode is PackingMode.OPTIMISE,
                options=solver,
                spot_to_spot=gates.spot_to_spot_consolidation,
                static=gates.static_capacity,
            ),
            gates,
            max_batch_pods=options.max_batch_pods,
        )


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """What ``add_autoscaler`` created."""

    state: ClusterState
    provisioner: Provisioner
    disruption: DisruptionLoop


def add_autoscaler(
    runtime: Runtime,
    clock: Clock,
    provider: MachineProvider,
    settings: AutoscalerSettings | None = None,
    *,
    decisions: DecisionRunner | None = None,
    quota: QuotaReader | None = None,
) -> Autoscaler:
    """Add provisioning, node pools, node claims and disruption to a runtime."""
    given, where = settings or AutoscalerSettings(), decisions or ThreadDecisions()
    manager, caches = runtime.manager, runtime.manager.caches
    for kind in KINDS:
        caches.of(kind, optional=True)  # until the CRDs are installed
    cluster = ScaledCluster(caches)
    metrics = ProvisioningMetrics(runtime.metrics.registry)
    if given.gates.node_overlay:
        provider = _add_overlays(runtime, clock, provider, cluster, where)
    times = _add_metrics(cluster, clock, runtime.metrics.registry)
    buffers = BufferStore() if given.gates.capacity_buffer else None
    limit = BatchLimit(given.max_batch_pods)
    state = ClusterState(cluster, provider, clock, buffers=buffers, limit=limit, quota=quota)
    classes, static = caches.of(ProxmoxNodeClass), given.gates.static_capacity
    pools = nodepool.NodePoolReconciler(
        runtime.kube, cluster, provider, metrics, classes, static=static
    )
    manager.add(Controller(name=nodepool.NAME, reconciler=pools))
    provisioner = Provisioner(
        runtime.kube, state, clock, manager.recorder, metrics, given.provisioning, where, times
    )
    manager.add_loop(provisioning.NAME, provisioner.run, shard="")
    if buffers is not None:
        _add_buffers(runtime, buffers, provisioner)
    claims = add_claims(runtime, clock, provider, given.claims)
    _add_interruption(runtime, clock, state, provider, claims, given.interruption)
    loop = add_disruption(runtime, clock, state, claims, metrics, given.disruption, where)
    return Autoscaler(state, provisioner, loop)


def _add_interruption(
    runtime: Runtime,
    clock: Clock,
    state: ClusterState,
    provider: MachineProvider,
    claims: ClaimControllers,
    settings: InterruptionSettings,
) -> None:
    loop = interruption.InterruptionLoop(
        runtime.kube,
        state,
        provider,
        claims.lookup,
        claims.metrics,
        clock,
        runtime.manager.recorder,
        settings,
    )
    runtime.manager.add_loop(interruption.NAME, loop.run, shard="")


def _add_metrics(
    cluster: ScaledCluster, clock: Clock, registry: CollectorRegistry
) -> PodDecisionTimes:
    """Add the metrics of nodes and pods; returns where times of decisions are noted."""
    times = PodDecisionTimes(clock)
    NodeMetrics(cluster, clock, registry)
    PodStates(cluster, clock, registry, times)
    PodDurations(cluster, registry, times)
    return times


def _add_overlays(
    runtime: Runtime,
    clock: Clock,
    provider: MachineProvider,
    cluster: ScaledCluster,
    decisions: DecisionRunner,
) -> OverlaidProvider:
    """Add the controller of overlays; returns the provider with overlays applied."""
    found = OverlaidProvider(provider, cluster.overlays, cluster.pools)
    reconciler = node_overlay.NodeOverlayReconciler(
        found, cluster.overlays, cluster.pools, clock, decisions
    )
    runtime.manager.add(Controller(name=node_overlay.NAME, reconciler=reconciler))
    return found


def _add_buffers(runtime: Runtime, buffers: BufferStore, provisioner: Provisioner) -> None:
    """Add the controller of buffers."""
    cache = runtime.manager.caches.of(CapacityBuffer, optional=True)
    reconciler = capacity_buffer.CapacityBufferReconciler(buffers, provisioner.trigger, cache)
    runtime.manager.add(Controller(name=capacity_buffer.NAME, reconciler=reconciler, condition=""))
    buffers.listen(lambda key: runtime.manager.wake(capacity_buffer.NAME, key))
