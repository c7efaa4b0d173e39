"""
Builds the controllers of this package and adds them to a runtime.

The caller runs the regions. The controllers subscribe to tasks and inventories of all of them.
"""

from dataclasses import dataclass

from prometheus_client import Gauge

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import GlobalInClusterIPPool, InClusterIPPool, IPAddress, IPAddressClaim
from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate
from moxwell.clock import Clock
from moxwell.controllers.infra.address_conflicts import AddressCaches, AddressConflicts
from moxwell.controllers.infra.address_reservation import controller as address_reservations
from moxwell.controllers.infra.address_user_reader import AddressUserReader
from moxwell.controllers.infra.cluster import controller as clusters
from moxwell.controllers.infra.cluster.see import ClusterCaches, ClusterObserver
from moxwell.controllers.infra.collect import controller as collect
from moxwell.controllers.infra.dhcp_addresses import DhcpAddressRefresher
from moxwell.controllers.infra.host_capabilities import HostCapabilityCache
from moxwell.controllers.infra.iso_cache import IsoCache
from moxwell.controllers.infra.machine import controller as machines
from moxwell.controllers.infra.machine.adoption import GuestAdoption
from moxwell.controllers.infra.machine.clone_slots import CloneSlots
from moxwell.controllers.infra.machine.describe import LEGACY_CONDITIONS
from moxwell.controllers.infra.machine.explain import Explainer
from moxwell.controllers.infra.machine.guest import GuestReader
from moxwell.controllers.infra.machine.guest_agent import GuestAgentProbe
from moxwell.controllers.infra.machine.ip_claims import IPClaimReader
from moxwell.controllers.infra.machine.placement_reader import PlacementReader
from moxwell.controllers.infra.machine.quota import QuotaReader, VolumeBytes
from moxwell.controllers.infra.machine.see import IsScaled, MachineCaches, MachineObserver
from moxwell.controllers.infra.machine.stale_clone import StaleCloneObserver
from moxwell.controllers.infra.machine.taken_addresses import TakenAddressReader
from moxwell.controllers.infra.node_addresses import NodeAddressReader
from moxwell.controllers.infra.policy import InfraPolicy
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.controllers.infra.task_backoff import TaskBackoff
from moxwell.controllers.infra.template import controller as templates
from moxwell.controllers.infra.template_build import controller as template_builds
from moxwell.controllers.infra.templates import TemplateCache
from moxwell.controllers.infra.waiting_placements import WaitingPlacements
from moxwell.controllers.infra.zone_defaults import ZoneResolver
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Reservations
from moxwell.runtime.cache import Cache
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Runtime
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.tenant_clients import TenantClients
from moxwell.scheduling.numa.sources import NodeSettings


@dataclass(frozen=True, slots=True)
class Infra:
    """The parts of the controllers that the CLI, the dashboard and tests use."""

    explainer: Explainer
    registry: RegionRegistry
    collector: collect.OrphanCollector


@dataclass(frozen=True, slots=True)
class _Shared:
    """What the controllers of this package share."""

    runtime: Runtime
    clock: Clock
    regions: Regions
    reservations: Reservations
    registry: RegionRegistry
    zones: ZoneResolver
    templates: TemplateCache
    isos: IsoCache
    policy: InfraPolicy
    hosts: NodeSettings
    volumes: VolumeBytes
    is_scaled: IsScaled
    waiting: WaitingPlacements
    capabilities: HostCapabilityCache
    conflicts: AddressConflicts


def add_infra(
    runtime: Runtime,
    clock: Clock,
    regions: Regions,
    reservations: Reservations,
    *,
    registry: RegionRegistry,
    policy: InfraPolicy | None = None,
    hosts: NodeSettings | None = None,
    volumes: VolumeBytes = lambda namespace: 0,
    is_scaled: IsScaled = lambda cluster: True,
    waiting: WaitingPlacements | None = None,
    tenants: TenantClients | None = None,
) -> Infra:
    """
    Add the infrastructure controllers to a runtime.

    ``hosts`` is a node-settings file; ``volumes`` returns what a tenant's volumes use. Warm guests
    of a cluster for which ``is_scaled`` is false are deleted. Machines without a host are noted in
    ``waiting``. No machine gets an address that a Node of one of the ``tenants`` has.
    """
    capabilities = HostCapabilityCache(clock)
    shared = _Shared(
        runtime,
        clock,
        regions,
        reservations,
        registry,
        ZoneResolver(regions, registry),
        TemplateCache(clock),
        IsoCache(clock),
        policy or InfraPolicy(),
        hosts or {},
        volumes,
        is_scaled,
        waiting or WaitingPlacements(clock),
        capabilities,
        _conflicts(runtime.manager.caches, clock, tenants, capabilities),
    )
    return _add_controllers(shared)


def _add_controllers(shared: _Shared) -> Infra:
    for add in (_add_clusters, _add_templates, _add_dhcp_addresses, _add_address_reservations):
        add(shared)
    return Infra(_add_machines(shared), shared.registry, _add_collector(shared))


def _add_machines(shared: _Shared) -> Explainer:
    manager, clock, regions = shared.runtime.manager, shared.clock, shared.regions
    caches = manager.caches
    own = caches.of(ProxmoxMachine)
    others = MachineCaches(caches.of(Machine), caches.of(Cluster), caches.of(ProxmoxCluster))
    placement = _placement(shared, own)
    agent, backoff = GuestAgentProbe(clock), TaskBackoff(clock)
    stale_clones = StaleCloneObserver(regions, clock)
    clone_slots = CloneSlots(shared.policy.full_clones, machines.claimed_clones(own))
    observer = MachineObserver(
        regions,
        others,
        placement=placement,
        zones=shared.zones,
        ip_claims=_ip_claims(caches),
        guests=GuestReader(shared.templates, shared.isos, _adoption(shared.policy, own)),
        agent=agent,
        backoff=backoff,
        stale_clones=stale_clones,
        quota=QuotaReader(own, shared.reservations, shared.volumes),
        clone_slots=clone_slots,
        is_scaled=shared.is_scaled,
        waiting=shared.waiting,
        taken=TakenAddressReader(shared.conflicts),
    )
    machine = machines.MachineReconciler(
        shared.runtime.kube,
        regions,
        own,
        observer=observer,
        agent=agent,
        reservations=shared.reservations,
        backoff=backoff,
        isos=shared.isos,
        stale_clones=stale_clones,
        clone_slots=clone_slots,
    )
    manager.add(_machine_controller(machine))
    machine.listen(lambda key: manager.wake(machines.NAME, key))
    return Explainer(own, others, placement, shared.zones)


def _placement(shared: _Shared, own: Cache[ProxmoxMachine]) -> PlacementReader:
    return PlacementReader(
        shared.regions,
        shared.clock,
        shared.templates,
        shared.reservations,
        own,
        shared.hosts,
        shared.capabilities,
    )


def _adoption(policy: InfraPolicy, own: Cache[ProxmoxMachine]) -> GuestAdoption:
    return GuestAdoption(policy.adopt_guests, lambda key: own.by(machines.BY_MARK, key))


def _ip_claims(caches: Caches) -> IPClaimReader:
    return IPClaimReader(
        caches.of(IPAddressClaim),
        caches.of(IPAddress),
        caches.of(InClusterIPPool),
        caches.of(GlobalInClusterIPPool, optional=True),
    )


def _machine_controller(machine: machines.MachineReconciler) -> Controller:
    return Controller(
        name=machines.NAME,
        reconciler=machine,
        shard=machines.shard,
        needs=machines.needs,
        owns=LEGACY_CONDITIONS,
        pausable=True,
        defers_status=lambda obj: obj.deleting or machines.is_being_created(obj),
        urgent_status=machines.URGENT_STATUS,
    )


def _add_clusters(shared: _Shared) -> None:
    manager = shared.runtime.manager
    caches = manager.caches
    own = caches.of(ProxmoxCluster)
    inputs = ClusterCaches(
        own,
        caches.of(Cluster),
        caches.of(ProxmoxMachine),
        caches.of(InClusterIPPool),
        caches.of(IPAddressClaim),
        caches.of(IPAddress),
    )
    cluster = clusters.ClusterReconciler(
        shared.runtime.kube,
        shared.regions,
        own,
        observer=ClusterObserver(inputs, shared.zones, shared.registry, shared.policy),
        registry=shared.registry,
    )
    manager.add(
        Controller(name=clusters.NAME, reconciler=cluster, needs=clusters.needs, pausable=True)
    )
    cluster.listen(lambda key: manager.wake(clusters.NAME, key))


def _add_templates(shared: _Shared) -> None:
    manager = shared.runtime.manager
    template = templates.TemplateReconciler(shared.regions, shared.templates)
    manager.add(Controller(name=templates.NAME, reconciler=template))
    manager.caches.of(ProxmoxTemplate, optional=True)  # the CRDs of the autoscaler may be missing
    build = template_builds.TemplateBuildReconciler(shared.regions, TaskBackoff(shared.clock))
    manager.add(Controller(name=template_builds.NAME, reconciler=build))
    build.listen(lambda key: manager.wake(template_builds.NAME, key))


def _add_address_reservations(shared: _Shared) -> None:
    reserved = address_reservations.AddressReservationReconciler(
        shared.runtime.kube, shared.regions, shared.conflicts
    )
    shared.runtime.manager.add(
        Controller(
            name=address_reservations.NAME,
            reconciler=reserved,
            needs=address_reservations.needs,
        )
    )


def _conflicts(
    caches: Caches, clock: Clock, tenants: TenantClients | None, hosts: HostCapabilityCache
) -> AddressConflicts:
    objects = AddressCaches(
        caches.of(IPAddressClaim),
        caches.of(IPAddress),
        caches.of(ProxmoxMachine),
        caches.of(Cluster),
        caches.of(ProxmoxCluster),
    )
    guests, nodes = AddressUserReader(clock), NodeAddressReader(tenants, clock)
    return AddressConflicts(guests, nodes, hosts, objects)


def _add_collector(shared: _Shared) -> collect.OrphanCollector:
    runtime = shared.runtime
    gauge = Gauge(
        "moxwell_orphaned_guests",
        "Guests with an owner mark whose ProxmoxMachine does not exist",
        ("region",),
        registry=runtime.metrics.registry,
    )
    collector = collect.OrphanCollector(
        shared.regions,
        shared.clock,
        runtime.manager.caches.of(ProxmoxMachine),
        shared.isos,
        report=lambda region, count: gauge.labels(region).set(count),
    )
    runtime.manager.add_loop(collect.NAME, collector.run, shard="")
    return collector


def _add_dhcp_addresses(shared: _Shared) -> None:
    manager = shared.runtime.manager

    def wake(key: Key) -> None:
        manager.wake(machines.NAME, key)

    refresher = DhcpAddressRefresher(shared.clock, manager.caches.of(ProxmoxMachine), wake)
    manager.add_loop("infra.dhcp", refresher.run)  # each replica enqueues those of its shards
