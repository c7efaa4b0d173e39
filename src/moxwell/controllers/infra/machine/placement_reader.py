"""
Reads what the placement of a machine depends on: hosts, templates, replicas, reservations, VMIDs.

It decides nothing and writes nothing. After the last request to Proxmox everything is read without
suspending, so that the caller can plan and reserve before any other pass runs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from moxwell.api.infra.cluster import ProxmoxClusterSpec
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineSpec
from moxwell.api.infra.network import NetworkDevice
from moxwell.api.infra.tenant_limits import TenantLimits
from moxwell.api.infra.warm_guests import is_warm, uses_no_compute
from moxwell.api.infra.zone_settings import ZoneSettings
from moxwell.bootstrap.network import HostBridge
from moxwell.clock import Clock
from moxwell.controllers.infra.host_capabilities import HostCapabilityCache
from moxwell.controllers.infra.machine.observed import ObservedPlacement, VmidUsage
from moxwell.controllers.infra.machine.placement import (
    bridge_of,
    placement_request,
    template_query,
)
from moxwell.controllers.infra.owners import is_replaced_by, replica_group
from moxwell.controllers.infra.templates import TemplateCache, TemplateDetails, template_of
from moxwell.pve.model import ObservedGuest
from moxwell.pve.regions import Region, Regions
from moxwell.pve.reservations import Reservations
from moxwell.runtime.cache import Cache
from moxwell.scheduling.inventory_model import (
    CandidateHost,
    HostCapabilities,
    HostKey,
    HostStorage,
    PendingGuest,
    PlacedReplica,
)
from moxwell.scheduling.numa.sources import NodeSettings, settings_of
from moxwell.scheduling.pending_guests import pending_guest
from moxwell.scheduling.placement_model import PlacementRequest
from moxwell.scheduling.simulate import PlacementInput
from moxwell.scheduling.templates import TemplateMissing, choose_templates
from moxwell.scheduling.vmids import cooling

Zones = Mapping[str, tuple[Region, ZoneSettings]]
BY_GROUP = "infra.group"
BY_REGION = "infra.region"


class PlacementReader:
    """Reads placement inputs from inventories, caches and reservations."""

    def __init__(
        self,
        regions: Regions,
        clock: Clock,
        templates: TemplateCache,
        reservations: Reservations,
        machines: Cache[ProxmoxMachine],
        hosts: NodeSettings | None = None,
        capabilities: HostCapabilityCache | None = None,
    ) -> None:
        """``hosts``: the content of a node-settings file, with ratios of overcommitment."""
        self._hosts = hosts or {}
        self._regions, self._clock = regions, clock
        self._capabilities = capabilities or HostCapabilityCache(clock)
        self._templates, self._reservations, self._machines = templates, reservations, machines
        machines.add_index(BY_GROUP, lambda m: (replica_group(m),))
        machines.add_index(BY_REGION, lambda m: (m.spec.region,) if m.spec.region else ())

    async def read(
        self,
        machine: ProxmoxMachine,
        spec: ProxmoxClusterSpec,
        zones: Zones,
        *,
        version: str = "",
        tenant: TenantLimits | None = None,
    ) -> ObservedPlacement:
        """Everything that the choice for a machine depends on, as it is now."""
        templates = await self._all_templates(machine.spec, zones, version, tenant)
        request = placement_request(machine.spec, spec, templates)
        if is_warm(machine):
            request = replace(request, cpus=0, memory_bytes=0)
        capabilities = await self._read_capabilities(zones, request)
        return ObservedPlacement(  # nothing is awaited from here on
            PlacementInput(
                request,
                tuple(_hosts(zones, capabilities, self._hosts)),
                tuple(t.template for t in templates),
                tuple(self._replicas(machine)),
                tuple(self._pending(machine)),
                zoned=bool(spec.zone_config),
            ),
            tuple(templates),
            {region.name: self._vmid_usage(region, machine) for region, _ in zones.values()},
        )

    async def host_bridges(
        self,
        region: Region,
        host: str,
        devices: Iterable[NetworkDevice],
        template_nics: Mapping[str, str],
        zone_bridge: str,
    ) -> dict[str, HostBridge]:
        """What the host has on the bridge of each device; only bridges that are known."""
        found = await self._capabilities.host_bridges(region, host)
        named = {
            d.name: d.bridge or zone_bridge or bridge_of(template_nics.get(d.name, ""))
            for d in devices
        }
        return {
            device: HostBridge(row.cidr, row.cidr6, row.gateway, row.gateway6, row.mtu or 0)
            for device, name in named.items()
            if (row := found.get(name)) is not None and row.active
        }

    async def _read_capabilities(
        self, zones: Zones, request: PlacementRequest
    ) -> dict[HostKey, HostCapabilities]:
        """The capabilities of all online hosts."""
        cache, found = self._capabilities, dict[HostKey, HostCapabilities]()
        for region, _ in zones.values():
            hosts = [h.name for h in region.inventory.hosts.values() if h.online]
            bridges = await cache.bridges(region, hosts)
            mapped = await cache.mappings(region) if request.mappings else None
            maintenance = await cache.in_maintenance(region)
            common = HostCapabilities(
                firewall_groups=await cache.firewall_groups(region, request.firewall_groups),
                ha_groups=await cache.ha_groups(region, request.ha_groups),
            )
            for host in hosts:
                found[HostKey(region.name, host)] = replace(
                    common,
                    bridges=bridges.get(host),
                    mappings=None if mapped is None else mapped.get(host, frozenset()),
                    maintenance=host in maintenance,
                )
        return found

    async def _all_templates(
        self, spec: ProxmoxMachineSpec, zones: Zones, version: str, tenant: TenantLimits | None
    ) -> list[TemplateDetails]:
        """The matching templates of all zones; raises only if no zone has any."""
        found: dict[tuple[str, int], TemplateDetails] = {}
        missing: TemplateMissing | None = None
        for region, zone in zones.values():
            try:
                known = _templates(region, tenant)
                for details in await self._zone_templates(spec, region, zone, version, known):
                    found.setdefault((region.name, details.template.vmid), details)
            except TemplateMissing as error:
                missing = error
        if missing is not None and not found:
            raise missing
        return list(found.values())

    async def _zone_templates(
        self,
        spec: ProxmoxMachineSpec,
        region: Region,
        zone: ZoneSettings,
        version: str,
        known: Mapping[int, ObservedGuest],
    ) -> list[TemplateDetails]:
        matching = choose_templates(
            template_query(spec, zone, version),
            [template_of(region.name, t) for t in known.values()],
        )
        return [await self._templates.get(region, known[t.vmid]) for t in matching]

    def _replicas(self, machine: ProxmoxMachine) -> list[PlacedReplica]:
        """Replicas of the same group that have a host, or a reservation on one."""
        group = replica_group(machine)
        replicas = []
        known = {machine.uid}
        for other in self._machines.by(BY_GROUP, group):
            claim = other.spec.claim
            if other.uid != machine.uid and claim and other.spec.region:
                known.add(other.uid)
                key = HostKey(other.spec.region, claim.host)
                replicas.append(PlacedReplica(key, claim.zone, is_replaced_by(other, machine)))
        for reserved in self._reservations.open(excluding=known):
            if reserved.group == group:
                key = HostKey(reserved.region, reserved.host)
                replicas.append(PlacedReplica(key, reserved.zone))
        return replicas

    def _pending(self, machine: ProxmoxMachine) -> list[PendingGuest]:
        """Claimed or reserved guests that the inventory does not count yet."""
        pending, known = [], {machine.uid}
        for other in self._machines.list():
            claim, vmid = other.spec.claim, other.spec.virtual_machine_id
            if other.uid == machine.uid or claim is None or vmid is None or not other.spec.region:
                continue
            region = self._regions.find(other.spec.region)
            guest = region.inventory.find(vmid) if region else None
            known.add(other.uid)
            key = HostKey(other.spec.region, claim.host)
            counted = guest is not None and bool(guest.memory_bytes)
            warm = guest is not None and _is_warm_guest(guest)
            waiting = pending_guest(other, key, counted=counted, warm=warm)
            if waiting is not None:
                pending.append(waiting)
        for r in self._reservations.open(excluding=known):
            key = HostKey(r.region, r.host)
            pending.append(PendingGuest(key, r.cpus, r.memory_bytes, r.storage, r.disk_bytes))
        return pending

    def _vmid_usage(self, region: Region, machine: ProxmoxMachine) -> VmidUsage:
        """Own reservations are free: one is left when the write of the claim had a conflict."""
        claimed = {
            m.spec.virtual_machine_id
            for m in self._machines.by(BY_REGION, region.name)
            if m.spec.virtual_machine_id is not None
        }
        return VmidUsage(
            region.inventory.guests,
            self._reservations.vmids(region.name, excluding={machine.uid}) | claimed,
            cooling(region.inventory.freed, self._clock.monotonic()),
        )


def _hosts(
    zones: Zones,
    capabilities: Mapping[HostKey, HostCapabilities],
    ratios: NodeSettings,
) -> Iterable[CandidateHost]:
    for zone, (region, settings) in zones.items():
        view = region.inventory.view
        for name, host in view.hosts.items():
            if settings.nodes and name not in settings.nodes:
                continue
            guests = [
                g for g in view.by_host.get(name, ()) if not g.template and not _is_warm_guest(g)
            ]
            stores = {
                s.name: HostStorage(s.name, s.free_bytes, s.shared, s.available, s.content, s.type)
                for (at, _), s in view.storages.items()
                if at == name
            }
            key = HostKey(region.name, name)
            given = settings_of(ratios, region.name, name)
            yield CandidateHost(
                key,
                host.cpus,
                host.memory_bytes,
                zone or region.zone_of(name),
                host.online,
                cpus_taken=int(sum(g.cpus for g in guests)),
                memory_taken=sum(g.memory_bytes for g in guests),
                stores=stores,
                capabilities=_with_zone(capabilities.get(key), settings),
                cpu_percent=_percent(given.cpuovercommit if given else None),
                memory_percent=_percent(given.memoryovercommit if given else None),
            )


def _is_warm_guest(guest: ObservedGuest) -> bool:
    return uses_no_compute(guest.tags, has_process=guest.has_process)


def _percent(ratio: float | None) -> int | None:
    return None if ratio is None else round(ratio * 100)


def _with_zone(found: HostCapabilities | None, zone: ZoneSettings) -> HostCapabilities:
    """The capabilities with the defaults of a zone; a host may be in two zones."""
    return replace(
        found or HostCapabilities(),
        storage=zone.storage,
        iso_storage=zone.iso_storage,
        bridge=zone.bridge,
    )


def _templates(region: Region, tenant: TenantLimits | None) -> dict[int, ObservedGuest]:
    """The templates of a region by VMID, without those of other tenants."""
    return {
        t.vmid: t
        for t in region.inventory.view.templates
        if t.kind == "qemu" and (tenant is None or tenant.allows_template_in(t.pool))
    }
