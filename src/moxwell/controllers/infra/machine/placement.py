"""
Finding a place: the inventories as the kernel's values, and the kernel's answer as a claim.

In flow a machine, its ground and the regions it may be in; out flows a :class:`Choice`, or the
verdict on every host. Nothing is written here; two passes that choose side by side see each other's
choice through the ledger, in which it is noted before anybody else can run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from moxwell.api.infra.cluster import ClusterSpec
from moxwell.api.infra.machine import MachineSpec, ProxmoxMachine
from moxwell.api.infra.template import Claim, TemplateSelector
from moxwell.bootstrap.network_plan import devices_of
from moxwell.clock import Clock
from moxwell.controllers.infra import templates as moulds
from moxwell.controllers.infra.host_capabilities import Fittings
from moxwell.controllers.infra.machine.observed import Choice
from moxwell.controllers.infra.owners import group_of
from moxwell.controllers.infra.templates import Mould, Moulds
from moxwell.pve import property_strings
from moxwell.pve.regions import Region, Regions
from moxwell.pve.reservations import Ledger, Promise
from moxwell.runtime.cache import Cache
from moxwell.scheduling.guest_hardware import BRIDGE
from moxwell.scheduling.inventory_model import GIB, MIB, Flight, Host, HostKey, Neighbour, Store
from moxwell.scheduling.inventory_model import Fittings as HostFittings
from moxwell.scheduling.placement import Ask, Limits, Placement, Verdict
from moxwell.scheduling.simulate import Survey
from moxwell.scheduling.templates import TemplateMissing, Want, choose_templates
from moxwell.scheduling.vmids import VmidRange, choose_vmid, cooling
from moxwell.scheduling.zone_settings import Ground, ground_of

Zones = Mapping[str, tuple[Region, Ground]]
BY_GROUP = "infra.group"
BY_REGION = "infra.region"


class Chooser:
    """Chooses host, template and id for machines."""

    def __init__(
        self,
        regions: Regions,
        clock: Clock,
        moulds: Moulds,
        ledger: Ledger,
        machines: Cache[ProxmoxMachine],
    ) -> None:
        self._regions, self._clock, self._fittings = regions, clock, Fittings(clock)
        self._moulds, self._ledger, self._machines = moulds, ledger, machines
        machines.add_index(BY_GROUP, lambda m: (group_of(m),))
        machines.add_index(BY_REGION, lambda m: (m.spec.region,) if m.spec.region else ())

    async def choose(
        self,
        machine: ProxmoxMachine,
        cluster: tuple[str, ClusterSpec],
        zones: Zones,
        *,
        version: str = "",
        avoid: frozenset[HostKey] = frozenset(),
    ) -> tuple[Choice | None, Placement]:
        """The best place in any of the zones, or none with the verdict on every host."""
        found = await self._all_templates(machine.spec, zones, version)
        ask = _ask(machine.spec, cluster[1], found)
        fitted = await self._fitted(zones, ask)  # nothing waits from here to the promise
        survey = self._survey(machine, cluster[1], zones, ask, found, fitted)
        placement = survey.without(avoid).place()
        if placement.chosen is None:
            return None, placement
        return self._claim(machine, cluster, placement.chosen, placement, ask, found), placement

    async def survey(
        self, machine: ProxmoxMachine, spec: ClusterSpec, zones: Zones, *, version: str = ""
    ) -> Survey:
        """Everything the choice depends on, as it is now."""
        found = await self._all_templates(machine.spec, zones, version)
        ask = _ask(machine.spec, spec, found)
        fitted = await self._fitted(zones, ask)
        return self._survey(machine, spec, zones, ask, found, fitted)

    async def _fitted(self, zones: Zones, ask: Ask) -> dict[HostKey, HostFittings]:
        """What the hosts in question have that the inventory does not show."""
        found: dict[HostKey, HostFittings] = {}
        for region, _ in zones.values():
            hosts = [h.name for h in region.inventory.hosts.values() if h.online]
            bridges = await self._fittings.bridges(region, hosts)
            mapped = await self._fittings.mappings(region) if ask.mappings else None
            emptied = await self._fittings.maintained(region)
            everywhere = HostFittings(
                firewall_groups=await self._fittings.firewall_groups(region, ask.firewall_groups),
                ha_groups=await self._fittings.ha_groups(region, ask.ha_groups),
            )
            for host in hosts:
                has = None if mapped is None else mapped.get(host, frozenset())
                found[HostKey(region.name, host)] = replace(
                    everywhere,
                    bridges=bridges.get(host),
                    mappings=has,
                    maintenance=host in emptied,
                )
        return found

    def _survey(
        self,
        machine: ProxmoxMachine,
        spec: ClusterSpec,
        zones: Zones,
        ask: Ask,
        found: list[Mould],
        fitted: Mapping[HostKey, HostFittings],
    ) -> Survey:
        return Survey(
            ask,
            tuple(self._hosts(zones, fitted)),
            tuple(m.template for m in found),
            tuple(self._neighbours(machine)),
            tuple(self._flights(machine)),
            zoned=bool(spec.zone_config),
        )

    async def _all_templates(self, spec: MachineSpec, zones: Zones, version: str) -> list[Mould]:
        """The templates of all zones; that one region has none is no matter if another has."""
        found: dict[tuple[str, int], Mould] = {}
        missing: TemplateMissing | None = None
        for region, ground in zones.values():
            try:
                for mould in await self._templates(spec, region, ground, version):
                    found.setdefault((region.name, mould.template.vmid), mould)
            except TemplateMissing as error:
                missing = error
        if missing is not None and not found:
            raise missing
        return list(found.values())

    async def _templates(
        self, spec: MachineSpec, region: Region, ground: Ground, version: str
    ) -> list[Mould]:
        there = {t.vmid: t for t in region.inventory.view.templates if t.kind == "qemu"}
        matching = choose_templates(
            _want(spec, ground, version), [moulds.bare(region.name, t) for t in there.values()]
        )
        return [await self._moulds.get(region, there[t.vmid]) for t in matching]

    def _hosts(self, zones: Zones, fitted: Mapping[HostKey, HostFittings]) -> Iterable[Host]:
        for zone, (region, ground) in zones.items():
            view = region.inventory.view
            for name, host in view.hosts.items():
                if ground.nodes and name not in ground.nodes:
                    continue
                guests = [g for g in view.by_host.get(name, ()) if not g.template]
                stores = {
                    s.name: Store(s.name, s.free_bytes, s.shared, s.available, s.content, s.type)
                    for (at, _), s in view.storages.items()
                    if at == name
                }
                key = HostKey(region.name, name)
                yield Host(
                    key,
                    host.cpus,
                    host.memory_bytes,
                    zone or region.zone_of(name),
                    host.online,
                    cpus_taken=int(sum(g.cpus for g in guests)),
                    memory_taken=sum(g.memory_bytes for g in guests),
                    stores=stores,
                    fittings=_grounded(fitted.get(key), ground),
                )

    def _neighbours(self, machine: ProxmoxMachine) -> list[Neighbour]:
        group = group_of(machine)
        near = []
        known = {machine.uid}
        for other in self._machines.by(BY_GROUP, group):
            claim = other.spec.claim
            if other.uid != machine.uid and claim and other.spec.region:
                known.add(other.uid)
                near.append(Neighbour(HostKey(other.spec.region, claim.host), claim.zone))
        for promise in self._ledger.open(besides=known):
            if promise.group == group:
                near.append(Neighbour(HostKey(promise.region, promise.host), promise.zone))
        return near

    def _flights(self, machine: ProxmoxMachine) -> list[Flight]:
        """Claimed, but not (or not yet with its figures) in the list that hosts are judged by."""
        flights, known = [], {machine.uid}
        for other in self._machines.list():
            claim, vmid = other.spec.claim, other.spec.virtual_machine_id
            if other.uid == machine.uid or claim is None or vmid is None or not other.spec.region:
                continue
            region = self._regions.find(other.spec.region)
            guest = region.inventory.find(vmid) if region else None
            known.add(other.uid)
            if guest is None or not guest.memory_bytes:
                flights.append(_flight(other.spec, other.spec.region, claim))
        for p in self._ledger.open(besides=known):
            key = HostKey(p.region, p.host)
            flights.append(Flight(key, p.cpus, p.memory_bytes, p.storage, p.disk_bytes))
        return flights

    def _claim(
        self,
        machine: ProxmoxMachine,
        cluster: tuple[str, ClusterSpec],
        verdict: Verdict,
        placement: Placement,
        ask: Ask,
        found: list[Mould],
    ) -> Choice:
        region, spec = self._regions[verdict.key.region], machine.spec
        mould = next(m for m in found if m.template == verdict.template)
        explicit = bool(cluster[1].zone_config)
        zone = verdict.zone if explicit else ""
        ground = ground_of(*cluster, zone)
        storage = spec.storage or ground.storage
        linked = _linked(spec, mould, storage) and not verdict.detour
        claim = Claim(
            host=verdict.key.name,
            uuid=machine.uid,
            zone=zone,
            template=mould.template.vmid,
            template_host=mould.template.key.name,
            storage="" if linked else storage,
            iso_storage=spec.iso_storage or ground.iso_storage or _iso_storage(region, verdict),
            linked=linked,
            detour=verdict.detour,
        )
        vmid = self._vmid(machine, cluster[1], region)
        choice = Choice(
            region.name, vmid, claim, placement, ask.cpus, ask.memory_bytes, ask.disk_bytes
        )
        self._ledger.promise(_promise(machine, choice))
        return choice

    def _vmid(self, machine: ProxmoxMachine, cluster: ClusterSpec, region: Region) -> int:
        given = machine.spec.vm_id_range or cluster.vm_id_range
        within = VmidRange(given.start, given.end) if given else VmidRange()
        taken = set(region.inventory.guests) | self._ledger.vmids(region.name)
        taken |= {
            m.spec.virtual_machine_id
            for m in self._machines.by(BY_REGION, region.name)
            if m.spec.virtual_machine_id is not None
        }
        resting = cooling(region.inventory.freed, self._clock.monotonic())
        return choose_vmid(within, taken, resting, seed=machine.uid)


def _grounded(found: HostFittings | None, ground: Ground) -> HostFittings:
    """A host in two zones takes from each what the zone says."""
    return replace(
        found or HostFittings(),
        storage=ground.storage,
        iso_storage=ground.iso_storage,
        bridge=ground.bridge,
    )


def _promise(machine: ProxmoxMachine, choice: Choice) -> Promise:
    claim = choice.claim
    return Promise(
        machine.uid,
        choice.region,
        choice.vmid,
        claim.host,
        choice.cpus,
        choice.memory_bytes,
        claim.storage,
        0 if claim.linked else choice.disk_bytes,
        group_of(machine),
        claim.zone,
    )


def _want(spec: MachineSpec, ground: Ground, version: str) -> Want:
    """The machine's own way to name its template; the zone's where it has one."""
    source = ground.template
    if source and (source.template_id or source.template_name or source.template_selector):
        return _named(
            source.template_id, source.source_node, source.template_name, source.template_selector
        )
    if spec.template_id or spec.template_name or spec.template_selector:
        return _named(
            spec.template_id, spec.source_node, spec.template_name, spec.template_selector
        )
    return Want(kubernetes=version)


def _named(
    vmid: int | None, host: str | None, name: str | None, selector: TemplateSelector | None
) -> Want:
    tags = frozenset(selector.match_tags) if selector else frozenset()
    policy = (selector.match_policy if selector else None) or "exact"
    return Want(vmid or 0, host or "", name or "", tags, policy)


def _ask(spec: MachineSpec, cluster: ClusterSpec, found: list[Mould]) -> Ask:
    config = found[0].config if found else {}
    cores = spec.num_cores or int(config.get("cores", "1"))
    sockets = spec.num_sockets or int(config.get("sockets", "1"))
    memory = spec.memory_mib or _memory_mib(config)
    boot = spec.disks.boot_volume.size_gb * GIB if spec.disks and spec.disks.boot_volume else 0
    extra: dict[str, int] = {}
    for disk in spec.disks.extra if spec.disks else ():
        where = disk.storage or spec.storage or ""
        extra[where] = extra.get(where, 0) + disk.size_gb * GIB
    nics = found[0].nics if found else {}
    devices = devices_of(spec, nics)
    allowed = spec.allowed_nodes or cluster.allowed_nodes
    hints, care = cluster.scheduler_hints, spec.high_availability
    return Ask(
        cores * sockets,
        memory * MIB,
        boot,
        spec.storage or "",
        extra,
        region="" if spec.virtual_machine_id else (spec.region or ""),
        hosts=frozenset(allowed) if allowed else None,
        target=spec.target or "",
        spread=spec.spread or "Prefer",
        linked=spec.full is False,
        thin=bool(found) and all(_linked(spec, m, spec.storage or "") for m in found),
        needs_iso=True,
        iso_storage=spec.iso_storage or "",
        bridges=frozenset(d.bridge for d in devices if d.bridge),
        other_bridges=frozenset(_bridge(nics.get(d.name, "")) for d in devices if not d.bridge),
        mappings=frozenset(p.mapping for p in spec.pci_devices if p.mapping),
        firewall_groups=frozenset(spec.firewall_groups),
        ha_groups=frozenset({care.group}) if care and care.group else frozenset(),
        formats=_formats(spec),
        limits=Limits(
            (hints.cpu_adjustment if hints else None) or 0,
            100 if hints is None or hints.memory_adjustment is None else hints.memory_adjustment,
            100 if hints is None or hints.storage_adjustment is None else hints.storage_adjustment,
        ),
    )


def _bridge(nic: str) -> str:
    return property_strings.parse(nic).get("bridge") or BRIDGE


def _formats(spec: MachineSpec) -> frozenset[tuple[str, str]]:
    """The formats of further disks, and where; a clone's own is only a wish in Proxmox."""
    extra = spec.disks.extra if spec.disks else ()
    return frozenset((d.storage or spec.storage or "", d.format) for d in extra if d.format)


def _memory_mib(config: Mapping[str, str]) -> int:
    text = config.get("memory", "512").partition(",")[0].removeprefix("current=")
    return int(text) if text.isdigit() else 512


def _linked(spec: MachineSpec, mould: Mould, storage: str) -> bool:
    """Linked when asked for, or when nothing speaks against it."""
    if spec.full is not None:
        return not spec.full
    return mould.linkable and not storage and not spec.format


def _iso_storage(region: Region, verdict: Verdict) -> str:
    """Local storages first: nobody else's host has to see a seed disk."""
    rows = [
        s
        for (host, _), s in region.inventory.storages.items()
        if host == verdict.key.name and "iso" in s.content and s.available
    ]
    return min(rows, key=lambda s: (s.shared, s.name)).name if rows else ""


def _flight(spec: MachineSpec, region: str, claim: Claim) -> Flight:
    boot = spec.disks.boot_volume.size_gb * GIB if spec.disks and spec.disks.boot_volume else 0
    return Flight(
        HostKey(region, claim.host),
        (spec.num_cores or 1) * (spec.num_sockets or 1),
        (spec.memory_mib or 512) * MIB,
        claim.storage,
        0 if claim.linked else boot,
    )
