"""
Reads what a node class can make now: its hosts, templates and sizes, from caches and inventories.

It writes nothing. Only security groups, kernels and NUMA nodes of hosts, and PCI devices of
templates are asked for, and these answers are cached.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.warm_guests import uses_no_compute
from moxwell.api.karpenter.annotations import FITTED_SIZES, HUGE_PAGES
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate
from moxwell.controllers.karpenter.proxmox.catalogue import (
    Candidate,
    CatalogueSettings,
    candidates,
    sizes_of,
)
from moxwell.controllers.karpenter.proxmox.class_sources import ClassSources, Zones
from moxwell.controllers.karpenter.proxmox.host_numa_reader import ObservedNuma
from moxwell.controllers.karpenter.proxmox.host_states import (
    HostState,
    host_states,
    pending_guests,
    running_memory_left,
    with_architectures,
)
from moxwell.controllers.karpenter.proxmox.launches import (
    begun_launches,
    launched_names,
)
from moxwell.controllers.karpenter.proxmox.node_class_check import (
    CheckedNodeClass,
    InstanceTemplate,
    NodeClassPart,
    NodeClassProblem,
    NodeClassReason,
    check,
    matching,
)
from moxwell.controllers.karpenter.proxmox.node_policy import (
    CpuPolicy,
    machine_use,
    policy_of,
    with_numa,
)
from moxwell.controllers.karpenter.proxmox.pci_locality import (
    PassedDevices,
    by_host,
    near_by_zone,
)
from moxwell.controllers.karpenter.proxmox.scope import scope_of
from moxwell.controllers.karpenter.proxmox.zone_contents import contents_of, online_hosts
from moxwell.pve.regions import Region
from moxwell.runtime.key import Key
from moxwell.scheduling.guest_sizes import GuestSize
from moxwell.scheduling.inventory_model import HostKey, PendingGuest, Template
from moxwell.scheduling.numa.devices import Addresses
from moxwell.scheduling.numa.guests import GuestCpuUse
from moxwell.scheduling.spot_room import FreeRoom, RoomNeed
from moxwell.scheduling.well_known_labels import SPOT

FINE = "fine"  # its value for sizes in small steps


@dataclass(frozen=True, slots=True)
class ReadNodeClass:
    """What a node class can make now."""

    checked: CheckedNodeClass
    hosts: tuple[Candidate, ...] = ()
    sizes: tuple[GuestSize, ...] = ()
    settings: CatalogueSettings = field(default_factory=CatalogueSettings)


class NodeClassReader:
    """Reads node classes of one cluster; ``trusted``: its users are operators."""

    def __init__(
        self, cluster: Key, sources: ClassSources, settings: CatalogueSettings, *, trusted: bool
    ) -> None:
        self._cluster, self._sources, self._settings = cluster, sources, settings
        self._trusted = trusted

    @property
    def trusted(self) -> bool:
        """Whether the users of the cluster are operators."""
        return self._trusted

    def region(self, name: str) -> Region | None:
        """A region that the cluster may use; None if it has no such region or it is down."""
        cluster = self._proxmox_cluster()
        zones, _ = self._sources.zones.zones(cluster) if cluster else ({}, "")
        return next((r for r, _ in zones.values() if r.name == name), None)

    @property
    def spot_sizes(self) -> tuple[str, ...]:
        """The names of the sizes that are spot machines; only an instance-types file has some."""
        return tuple(s.name for s in self._settings.sizes if s.capacity_type == SPOT)

    async def hosts_in_maintenance(self, hosts: Iterable[HostKey]) -> dict[HostKey, str]:
        """Which of the hosts are in maintenance mode, as a sentence for each."""
        found: dict[HostKey, str] = {}
        for key in sorted(hosts):
            region = self.region(key.region)
            if region is None:
                continue
            if key.name in await self._sources.capabilities.in_maintenance(region):
                found[key] = f"the host {key} is in maintenance mode"
        return found

    def memory_needs(self, hosts: Iterable[HostKey]) -> tuple[RoomNeed, ...]:
        """The hosts whose running guests have more memory than guests may get there."""
        cluster = self._proxmox_cluster()
        found = []
        for key in sorted(hosts):
            region = self.region(key.region)
            if cluster is None or region is None or key.name not in region.inventory.view.hosts:
                continue
            given = self._sources.numa.settings(key.region, key.name)
            left = running_memory_left(cluster.spec, region, key.name, given)
            if left < 0:
                name = f"the host {key}, whose running guests have too much memory,"
                found.append(RoomNeed(name, 0, 0, {key: FreeRoom(0, left)}))
        return tuple(found)

    def own_template(self, node_class: ProxmoxNodeClass) -> ProxmoxTemplate | None:
        """The ProxmoxTemplate of a class, if operators wrote it; that of a tenant is not used."""
        found = self._sources.templates.find(node_class) if self._trusted else None
        return found if isinstance(found, ProxmoxTemplate) else None

    def templates(self, template: InstanceTemplate) -> tuple[Template, ...]:
        """The templates in the cluster's regions that an object means and that may be used."""
        cluster = self._proxmox_cluster()
        if cluster is None:
            return ()
        zones, _ = self._sources.zones.zones(cluster)
        scope = scope_of(cluster, self._sources.defaults(), trusted=self._trusted)
        known = {
            each: None
            for zone in contents_of(cluster, zones, {}, {})
            if template.spec.region in (None, zone.region)
            for each in zone.templates
        }
        named = matching(template, known, self._sources.templates.tags_of(template))
        found = (t for t in named if scope.allows_template(t))
        return tuple(sorted(found, key=lambda t: (t.key, t.vmid)))

    async def read(
        self, node_class: ProxmoxNodeClass, planned: Callable[[], Iterable[PendingGuest]] = tuple
    ) -> ReadNodeClass:
        """Check a node class and list its hosts with their room beside what is ``planned`` now."""
        cluster = self._proxmox_cluster()
        if cluster is None:
            return ReadNodeClass(CheckedNodeClass(problems=(_no_cluster(self._cluster),)))
        zones, unreachable = self._sources.zones.zones(cluster)
        wanted = frozenset(g.name for g in node_class.spec.security_groups)
        groups = {
            region.name: await self._sources.capabilities.firewall_groups(region, wanted)
            for region, _ in zones.values()
            if wanted
        }
        architectures = await self._architectures(cluster, zones)
        policy = policy_of(node_class, cluster, self._settings.node_policy, trusted=self._trusted)
        observed = await self._observed_numa(cluster, zones) if policy.needs_numa else {}
        passed = await self._passed_devices(node_class, zones) if policy.needs_numa else None
        # nothing is awaited from here on
        contents = tuple(contents_of(cluster, zones, groups, architectures))
        scope = scope_of(cluster, self._sources.defaults(), trusted=self._trusted)
        template = self._sources.templates.find(node_class)
        tags = self._sources.templates.tags_of(template)
        checked = check(node_class, template, contents, scope, unreachable, tags)
        if problem := policy.problem or _pages_problem(policy, zones):
            checked = CheckedNodeClass(problems=(*checked.problems, problem))
        states, pending = self._states(cluster, zones, node_class, tuple(planned()))
        states = with_architectures(states, architectures)
        if passed is not None:
            near = near_by_zone(passed, checked.zones)
            states = with_numa(states, observed, self._own_uses(zones), pending, policy, near)
        hosts = candidates(checked.zones, states)
        chosen = cluster.metadata.annotations.get(FITTED_SIZES)
        settings = self._settings
        if chosen in ("true", FINE):
            settings = replace(settings, fitted=True, fine=chosen == FINE)
        sizes = sizes_of(node_class.spec, settings, hosts)
        return ReadNodeClass(checked, hosts, sizes, settings)

    def _proxmox_cluster(self) -> ProxmoxCluster | None:
        caches = self._sources.management
        cluster = caches.clusters.find(self._cluster)
        ref = cluster.spec.infrastructure_ref if cluster else None
        if ref is None or ref.kind != "ProxmoxCluster":
            return None
        return caches.proxmox_clusters.find(Key(self._cluster.namespace, ref.name))

    def _states(
        self,
        cluster: ProxmoxCluster,
        zones: Zones,
        node_class: ProxmoxNodeClass,
        planned: tuple[PendingGuest, ...],
    ) -> tuple[tuple[HostState, ...], tuple[PendingGuest, ...]]:
        """The hosts, and the launches and plans that have no ProxmoxMachine yet."""
        sources = self._sources
        machines = sources.management.proxmox_machines.list()
        regions = {region.name: region for region, _ in zones.values()}
        pending = pending_guests(machines, sources.reservations.open(), regions)
        known = launched_names(machines)
        begun = begun_launches(sources.management.machines.list(), known)
        unseen = (*begun.values(), *sources.launched.unseen({*known, *begun}), *planned)
        storage = node_class.spec.boot_device.storage
        states = host_states(
            cluster.spec, zones, (*pending, *unseen), storage, sources.numa.settings
        )
        return states, unseen

    async def _architectures(self, cluster: ProxmoxCluster, zones: Zones) -> dict[HostKey, str]:
        """The architecture of each host that answers, from the cache or its kernel."""
        found: dict[HostKey, str] = {}
        for region, settings in zones.values():
            online = online_hosts(cluster, region, settings)
            read = await self._sources.capabilities.architectures(region, online)
            found |= {HostKey(region.name, host): arch for host, arch in read.items()}
        return found

    async def _observed_numa(
        self, cluster: ProxmoxCluster, zones: Zones
    ) -> dict[HostKey, ObservedNuma]:
        """The topology of the hosts and the guests of others, from caches or Proxmox."""
        found: dict[HostKey, ObservedNuma] = {}
        for region, settings in zones.values():
            online = online_hosts(cluster, region, settings)
            own = {vmid for vmid, _, _ in self._own_guests(region)} | self._warm_guests(region)
            read = await self._sources.numa.read(region, online, own)
            found |= {HostKey(region.name, host): each for host, each in read.items()}
        return found

    async def _passed_devices(self, node_class: ProxmoxNodeClass, zones: Zones) -> PassedDevices:
        """The PCI devices that guests of the node class get, from caches or Proxmox."""
        sources, regions = self._sources, {region.name: region for region, _ in zones.values()}
        template = sources.templates.find(node_class)
        copies = self.templates(template) if template else ()
        slots = await sources.devices.read(regions, copies, sources.defaults())
        mapped: dict[HostKey, Addresses] = {}
        for name in {region for region, _ in slots}:
            found = await sources.capabilities.mapped_devices(regions[name])
            mapped |= by_host(name, found)
        return PassedDevices(slots, mapped)

    def _warm_guests(self, region: Region) -> set[int]:
        """The VMIDs of stopped guests that use no CPUs."""
        return {
            guest.vmid
            for guest in region.inventory.guests.values()
            if uses_no_compute(guest.tags, has_process=guest.has_process)
        }

    def _own_uses(self, zones: Zones) -> Iterable[tuple[HostKey, GuestCpuUse]]:
        regions = {region.name: region for region, _ in zones.values()}
        for region in regions.values():
            for _, host, use in self._own_guests(region):
                yield HostKey(region.name, host), use

    def _own_guests(self, region: Region) -> Iterable[tuple[int, str, GuestCpuUse]]:
        """The VMID, host and use of each machine in a region."""
        for machine in self._sources.management.proxmox_machines.list():
            spec, use = machine.spec, machine_use(machine)
            if spec.region != region.name or use is None:
                continue
            vmid = spec.virtual_machine_id or 0
            guest = region.inventory.find(vmid)
            host = spec.claim.host if spec.claim else spec.target
            yield vmid, guest.host if guest else host or "", use


def _no_cluster(cluster: Key) -> NodeClassProblem:
    return NodeClassProblem(
        NodeClassPart.INFRASTRUCTURE,
        NodeClassReason.CLUSTER_NOT_FOUND,
        f"cluster {cluster} has no ProxmoxCluster in the management cluster; create it",
    )


def _pages_problem(policy: CpuPolicy, zones: Zones) -> NodeClassProblem | None:
    others = sorted({r.name for r, _ in zones.values() if not r.config.is_root})
    if not policy.huge_page_mib or not others:
        return None
    message = (
        f"metadata.annotations[{HUGE_PAGES}]: only a login as root@pam with a password may set "
        f"huge pages, and region {', '.join(others)} has another; remove the annotation or set "
        "spec.region"
    )
    return NodeClassProblem(
        NodeClassPart.INFRASTRUCTURE, NodeClassReason.NODE_POLICY_NOT_ALLOWED, message
    )
