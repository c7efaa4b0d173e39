"""
Builds the provider over Proxmox and its controllers for one scaled cluster.

``management`` runs the infrastructure controllers; ``scaled`` is the runtime of the cluster that is
scaled, which may be the same one.
"""

from collections.abc import Callable
from dataclasses import dataclass

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate, ProxmoxUnmanagedTemplate
from moxwell.clock import Clock
from moxwell.controllers.infra.host_capabilities import HostCapabilityCache
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.controllers.infra.template_build.from_spec import built_tags
from moxwell.controllers.infra.waiting_placements import WaitingPlacements
from moxwell.controllers.infra.zone_defaults import ZoneResolver
from moxwell.controllers.karpenter.proxmox import join_approver
from moxwell.controllers.karpenter.proxmox.adopt import controller as adopted_claims
from moxwell.controllers.karpenter.proxmox.catalogue import CatalogueSettings
from moxwell.controllers.karpenter.proxmox.class_reader import NodeClassReader
from moxwell.controllers.karpenter.proxmox.class_sources import (
    ClassSources,
    ManagementCaches,
    TemplateCaches,
)
from moxwell.controllers.karpenter.proxmox.host_numa_reader import HostNumaReader
from moxwell.controllers.karpenter.proxmox.join_approver import JoinApprover
from moxwell.controllers.karpenter.proxmox.launches import (
    FailedLaunches,
    LaunchedCapacity,
    UnavailableOfferings,
)
from moxwell.controllers.karpenter.proxmox.node_bootstrap import NodeBootstrap
from moxwell.controllers.karpenter.proxmox.node_class import controller as node_classes
from moxwell.controllers.karpenter.proxmox.node_class.plan import CPUS_PINNED
from moxwell.controllers.karpenter.proxmox.pci_locality import PassedDeviceReader
from moxwell.controllers.karpenter.proxmox.planned_capacity import PlannedCapacity
from moxwell.controllers.karpenter.proxmox.provider import ProviderParts, ProxmoxProvider
from moxwell.controllers.karpenter.proxmox.scope import MachineDefaults
from moxwell.controllers.karpenter.proxmox.spot_board import SpotBoard
from moxwell.controllers.karpenter.proxmox.spot_guests import SpotGuestReader, SpotSources
from moxwell.controllers.karpenter.proxmox.token_collector import JoinTokenCollector
from moxwell.controllers.karpenter.proxmox.unmanaged_template import (
    controller as unmanaged_templates,
)
from moxwell.controllers.karpenter.proxmox.warm_guests import WarmGuests
from moxwell.controllers.karpenter.proxmox.warm_pool import controller as warm_pools
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Reservations
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Runtime
from moxwell.runtime.reconciler import Controller
from moxwell.scheduling.numa.sources import NodeSettings


@dataclass(frozen=True, slots=True)
class ManagementSide:
    """What all scaled clusters share: the management cluster and Proxmox."""

    runtime: Runtime
    clock: Clock
    zones: ZoneResolver
    groups: HostCapabilityCache
    reservations: Reservations
    launched: LaunchedCapacity
    unavailable: UnavailableOfferings
    numa: HostNumaReader
    devices: PassedDeviceReader
    waiting: WaitingPlacements
    board: SpotBoard
    planned: PlannedCapacity


def management_side(
    runtime: Runtime,
    clock: Clock,
    regions: Regions,
    registry: RegionRegistry,
    reservations: Reservations,
    hosts: NodeSettings | None = None,
    waiting: WaitingPlacements | None = None,
) -> ManagementSide:
    """
    Build what all scaled clusters share; the caches are those of the management cluster.

    ``hosts`` is the content of a node-settings file; ``waiting`` are the machines without a host
    that the infrastructure controllers of this process have seen.
    """
    caches = runtime.manager.caches
    for kind in (Machine, Cluster, ProxmoxCluster, ProxmoxMachine):
        caches.of(kind)
    return ManagementSide(
        runtime,
        clock,
        ZoneResolver(regions, registry),
        HostCapabilityCache(clock),
        reservations,
        LaunchedCapacity(clock),
        UnavailableOfferings(clock),
        HostNumaReader(clock, hosts),
        PassedDeviceReader(clock),
        waiting or WaitingPlacements(clock),
        SpotBoard(clock),
        PlannedCapacity(clock),
    )


def add_provider(
    side: ManagementSide,
    scaled: Runtime,
    cluster: Key,
    *,
    defaults: Callable[[], MachineDefaults] = MachineDefaults,
    settings: CatalogueSettings | None = None,
    trusted: bool = False,
) -> ProxmoxProvider:
    """
    Build the provider of one cluster, named by its Cluster object in the management cluster.

    ``defaults`` are the operator's settings for its machines. ``trusted``: its users are operators,
    so that node classes may use everything in the cluster's regions.
    """
    sources = _sources(side, scaled, defaults)
    reader = NodeClassReader(cluster, sources, settings or CatalogueSettings(), trusted=trusted)
    parts = ProviderParts(
        side.runtime.kube,
        sources.management.machines,
        scaled.manager.caches.of(ProxmoxNodeClass, optional=True),
        sources,
        reader,
        NodeBootstrap(scaled.kube, side.clock),
        side.unavailable,
        FailedLaunches(side.clock),
        WarmGuests(cluster, side.runtime.kube, sources.management.proxmox_machines, defaults),
        SpotGuestReader(cluster, _spot_sources(side, scaled), reader),
        scaled.manager.caches.of(NodeClaim, optional=True),
        side.planned,
    )
    _add_controllers(scaled, cluster, parts, trusted=trusted)
    return ProxmoxProvider(cluster, parts)


def _sources(
    side: ManagementSide, scaled: Runtime, defaults: Callable[[], MachineDefaults]
) -> ClassSources:
    caches, own = side.runtime.manager.caches, scaled.manager.caches
    return ClassSources(
        ManagementCaches(
            caches.of(Machine),
            caches.of(Cluster),
            caches.of(ProxmoxCluster),
            caches.of(ProxmoxMachine),
        ),
        TemplateCaches(
            own.of(ProxmoxTemplate, optional=True),
            own.of(ProxmoxUnmanagedTemplate, optional=True),
            built_tags,
        ),
        side.zones,
        side.groups,
        side.reservations,
        side.launched,
        side.numa,
        side.devices,
        defaults,
    )


def _spot_sources(side: ManagementSide, scaled: Runtime) -> SpotSources:
    caches = side.runtime.manager.caches
    return SpotSources(
        caches.of(Machine),
        caches.of(ProxmoxMachine),
        scaled.manager.caches.of(NodeClaim, optional=True),
        side.waiting.current,
        side.board,
        side.unavailable,
    )


def _add_controllers(scaled: Runtime, cluster: Key, parts: ProviderParts, *, trusted: bool) -> None:
    manager = scaled.manager
    claims = manager.caches.of(NodeClaim, optional=True)
    classes = node_classes.NodeClassController(scaled.kube, cluster, parts, claims)
    manager.add(Controller(name=node_classes.NAME, reconciler=classes, owns=(CPUS_PINNED,)))
    pools = warm_pools.WarmPoolController(cluster, parts, claims, trusted=trusted)
    kept = warm_pools.CONDITION
    pool = Controller(name=warm_pools.NAME, reconciler=pools, condition=kept, owns=(kept,))
    manager.add(pool)
    pools.listen(lambda key: manager.wake(warm_pools.NAME, key))
    adoption = adopted_claims.ClaimAdoption(cluster, parts)
    manager.add(Controller(name=adopted_claims.NAME, reconciler=adoption, sees_deleting=True))
    templates = unmanaged_templates.UnmanagedTemplateController(parts.reader)
    manager.add(Controller(name=unmanaged_templates.NAME, reconciler=templates))
    manager.add(Controller(name=join_approver.NAME, reconciler=JoinApprover(scaled.kube)))
    collector = JoinTokenCollector(scaled.kube, claims)
    manager.add_loop("karpenter.tokens", collector.run, shard="")
