"""Add the autoscaler to the runtime of the cluster that it scales."""

from dataclasses import dataclass, field

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.clock import Clock
from moxwell.controllers.karpenter.claim.setup import ClaimSettings, add_claims
from moxwell.controllers.karpenter.disruption.controller import DisruptionSettings
from moxwell.controllers.karpenter.disruption.setup import add_disruption
from moxwell.controllers.karpenter.nodepool import controller as nodepool
from moxwell.controllers.karpenter.provider import MachineProvider
from moxwell.controllers.karpenter.provisioning import controller as provisioning
from moxwell.controllers.karpenter.provisioning.controller import (
    Provisioner,
    ProvisioningSettings,
)
from moxwell.controllers.karpenter.provisioning_metrics import ProvisioningMetrics
from moxwell.controllers.karpenter.state.objects import ScaledCluster
from moxwell.controllers.karpenter.state.snapshots import ClusterState
from moxwell.runtime.manager import Runtime
from moxwell.runtime.reconciler import Controller


@dataclass(frozen=True, slots=True)
class AutoscalerSettings:
    """Settings of all controllers of the autoscaler."""

    provisioning: ProvisioningSettings = field(default_factory=ProvisioningSettings)
    claims: ClaimSettings = field(default_factory=ClaimSettings)
    disruption: DisruptionSettings = field(default_factory=DisruptionSettings)


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """What ``add_autoscaler`` created."""

    state: ClusterState
    provisioner: Provisioner


def add_autoscaler(
    runtime: Runtime,
    clock: Clock,
    provider: MachineProvider,
    settings: AutoscalerSettings | None = None,
) -> Autoscaler:
    """Add provisioning, node pools, the life of node claims and disruption to a runtime."""
    given = settings or AutoscalerSettings()
    manager = runtime.manager
    for kind in (NodePool, NodeClaim, ProxmoxNodeClass):
        manager.caches.of(kind, optional=True)  # until the CRDs are installed
    cluster = ScaledCluster(manager.caches)
    metrics = ProvisioningMetrics(runtime.metrics.registry)
    state = ClusterState(cluster, provider, clock)
    pools = nodepool.NodePoolReconciler(runtime.kube, cluster, provider, metrics)
    manager.add(Controller(name=nodepool.NAME, reconciler=pools))
    provisioner = Provisioner(
        runtime.kube, state, clock, manager.recorder, metrics, given.provisioning
    )
    manager.add_loop(provisioning.NAME, provisioner.run, shard="")
    claims = add_claims(runtime, clock, provider, given.claims)
    add_disruption(runtime, clock, state, claims, metrics, given.disruption)
    return Autoscaler(state, provisioner)
