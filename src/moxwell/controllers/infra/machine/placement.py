"""
Chooses host, template and VMID of a machine. Pure; ``placement_reader`` reads the input.

The same functions decide and explain, so an explanation cannot differ from the decision.
"""

from collections.abc import Collection, Mapping, Sequence

from moxwell.api.infra.cluster import ProxmoxClusterSpec
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineSpec
from moxwell.api.infra.machine_reasons import ProxmoxMachineReason
from moxwell.api.infra.template import Claim, TemplateSelector
from moxwell.api.infra.zone_settings import ZoneSettings, zone_settings_of
from moxwell.bootstrap.network_plan import devices_of
from moxwell.controllers.infra.machine.moves import (
    MachineVersion,
    ReserveVMID,
)
from moxwell.controllers.infra.machine.observed import ObservedPlacement, OwnerObjects
from moxwell.controllers.infra.owners import replica_group
from moxwell.controllers.infra.templates import TemplateDetails
from moxwell.pve import firewall_groups, property_strings
from moxwell.pve.reservations import Reservation
from moxwell.runtime.move import Wait
from moxwell.scheduling import last_applied
from moxwell.scheduling.guest_hardware import BRIDGE
from moxwell.scheduling.inventory_model import GIB, MIB, HostKey
from moxwell.scheduling.placement_model import (
    HostVerdict,
    OvercommitLimits,
    Placement,
    PlacementRequest,
)
from moxwell.scheduling.simulate import PlacementInput
from moxwell.scheduling.templates import TemplateQuery
from moxwell.scheduling.vmids import VmidRange, choose_vmid, find_vmid

INSUFFICIENT_SECONDS = 15.0


def choose_place(
    obj: ProxmoxMachine,
    owners: OwnerObjects,
    observed: ObservedPlacement,
    *,
    avoid: Collection[HostKey] = (),
    stale_clones: tuple[str, ...] = (),
) -> ReserveVMID | Wait:
    """Reserve a VMID on the best host, or wait and say what each host lacks."""
    if observed.input is None:
        return Wait(ProxmoxMachineReason.REGION_UNREACHABLE, observed.unreachable)
    vmids = _free_vmids(obj, owners.proxmox_cluster.spec, observed)
    placement = _place(observed.input.without_hosts(avoid), vmids)
    if placement.chosen is None:
        rest = f" | {observed.unreachable}" if observed.unreachable else ""
        message = placement.sentence() + rest
        return Wait(ProxmoxMachineReason.INSUFFICIENT_RESOURCES, message, INSUFFICIENT_SECONDS)
    claim = _claim(obj, owners, observed, placement.chosen, stale_clones)
    region = placement.chosen.key.region
    vmid = vmids[region] or _vmid(obj, owners.proxmox_cluster.spec, observed, region)
    return ReserveVMID(
        MachineVersion.of(obj),
        region,
        vmid,
        claim,
        _reservation(obj, region, vmid, claim, observed.input.request),
        placement.sentence(),
    )


def _place(given: PlacementInput, vmids: Mapping[str, int | None]) -> Placement:
    """Prefer regions that have a free VMID; without one, the choice explains what is missing."""
    exhausted = {h.key for h in given.hosts if vmids.get(h.key.region, 0) is None}
    placement = given.without_hosts(exhausted).place()
    return placement if placement.chosen is not None or not exhausted else given.place()


def _claim(
    obj: ProxmoxMachine,
    owners: OwnerObjects,
    observed: ObservedPlacement,
    verdict: HostVerdict,
    stale_clones: tuple[str, ...],
) -> Claim:
    spec, cluster = obj.spec, owners.proxmox_cluster.spec
    details = next(t for t in observed.templates if t.template == verdict.template)
    zone = verdict.zone if cluster.zone_config else ""
    settings = zone_settings_of(owners.cluster.name, cluster, zone)
    storage = spec.storage or settings.storage
    linked = _is_linked(spec, details, storage) and not verdict.migrate_after_clone
    assert observed.input is not None
    iso_storage = spec.iso_storage or settings.iso_storage or _iso_storage(observed.input, verdict)
    return Claim(
        host=verdict.key.name,
        uuid=obj.uid,
        zone=zone,
        template=details.template.vmid,
        template_host=details.template.key.name,
        storage="" if linked else storage,
        iso_storage=iso_storage,
        linked=linked,
        migrate_after_clone=verdict.migrate_after_clone,
        stale_clones=stale_clones,
        applied=last_applied.wanted(spec),
    )


def _vmid_range(obj: ProxmoxMachine, cluster: ProxmoxClusterSpec) -> VmidRange:
    given = obj.spec.vm_id_range or cluster.vm_id_range
    return VmidRange(given.start, given.end) if given else VmidRange()


def _free_vmids(
    obj: ProxmoxMachine, cluster: ProxmoxClusterSpec, observed: ObservedPlacement
) -> dict[str, int | None]:
    """The VMID that the machine gets in each region; None where its range is exhausted."""
    within = _vmid_range(obj, cluster)
    return {
        region: find_vmid(within, usage, usage.cooling, seed=obj.uid)
        for region, usage in observed.vmids.items()
    }


def _vmid(
    obj: ProxmoxMachine, cluster: ProxmoxClusterSpec, observed: ObservedPlacement, region: str
) -> int:
    usage = observed.vmids[region]
    return choose_vmid(_vmid_range(obj, cluster), usage, usage.cooling, seed=obj.uid)


def _reservation(
    obj: ProxmoxMachine, region: str, vmid: int, claim: Claim, request: PlacementRequest
) -> Reservation:
    return Reservation(
        obj.uid,
        region,
        vmid,
        claim.host,
        request.cpus,
        request.memory_bytes,
        claim.storage,
        0 if claim.linked else request.disk_bytes,
        replica_group(obj),
        claim.zone,
    )


def template_query(spec: ProxmoxMachineSpec, zone: ZoneSettings, version: str) -> TemplateQuery:
    """How the template is named: by the zone, else by the machine, else by Kubernetes version."""
    source = zone.template
    if source and (source.template_id or source.template_name or source.template_selector):
        return _query(
            source.template_id, source.source_node, source.template_name, source.template_selector
        )
    if spec.template_id or spec.template_name or spec.template_selector:
        return _query(
            spec.template_id, spec.source_node, spec.template_name, spec.template_selector
        )
    return TemplateQuery(kubernetes=version)


def _query(
    vmid: int | None, host: str | None, name: str | None, selector: TemplateSelector | None
) -> TemplateQuery:
    tags = frozenset(selector.match_tags) if selector else frozenset()
    policy = (selector.match_policy if selector else None) or "exact"
    return TemplateQuery(vmid or 0, host or "", name or "", tags, policy)


def placement_request(
    spec: ProxmoxMachineSpec, cluster: ProxmoxClusterSpec, templates: Sequence[TemplateDetails]
) -> PlacementRequest:
    """What the machine needs of a host; the template fills in what the spec leaves out."""
    config = templates[0].config if templates else {}
    nics = templates[0].nics if templates else {}
    cores = spec.num_cores or int(config.get("cores", "1"))
    sockets = spec.num_sockets or int(config.get("sockets", "1"))
    devices = devices_of(spec, nics)
    allowed = spec.allowed_nodes or cluster.allowed_nodes
    care = spec.high_availability
    return PlacementRequest(
        cores * sockets,
        (spec.memory_mib or _memory_mib(config)) * MIB,
        spec.disks.boot_volume.size_gb * GIB if spec.disks and spec.disks.boot_volume else 0,
        spec.storage or "",
        _extra_bytes(spec),
        region="" if spec.virtual_machine_id else (spec.region or ""),
        hosts=frozenset(allowed) if allowed else None,
        target=spec.target or "",
        spread=spec.spread or "Prefer",
        linked=spec.full is False,
        thin=bool(templates) and all(_is_linked(spec, t, spec.storage or "") for t in templates),
        needs_iso=True,
        iso_storage=spec.iso_storage or "",
        bridges=frozenset(d.bridge for d in devices if d.bridge),
        other_bridges=frozenset(bridge_of(nics.get(d.name, "")) for d in devices if not d.bridge),
        mappings=frozenset(p.mapping for p in spec.pci_devices if p.mapping),
        firewall_groups=firewall_groups.names(spec.firewall_groups),
        ha_groups=frozenset({care.group}) if care and care.group else frozenset(),
        formats=_formats(spec),
        limits=_limits(cluster),
    )


def _limits(cluster: ProxmoxClusterSpec) -> OvercommitLimits:
    hints = cluster.scheduler_hints
    if hints is None:
        return OvercommitLimits(0, 100, 100)
    return OvercommitLimits(
        hints.cpu_adjustment or 0,
        100 if hints.memory_adjustment is None else hints.memory_adjustment,
        100 if hints.storage_adjustment is None else hints.storage_adjustment,
    )


def _extra_bytes(spec: ProxmoxMachineSpec) -> dict[str, int]:
    """Bytes of extra disks by storage; the empty name is the machine's default storage."""
    extra: dict[str, int] = {}
    for disk in spec.disks.extra if spec.disks else ():
        storage = disk.storage or spec.storage or ""
        extra[storage] = extra.get(storage, 0) + disk.size_gb * GIB
    return extra


def bridge_of(nic: str) -> str:
    """The bridge of a NIC of a template; the default one if it names none."""
    return property_strings.parse(nic).get("bridge") or BRIDGE


def _formats(spec: ProxmoxMachineSpec) -> frozenset[tuple[str, str]]:
    """The formats of extra disks by storage; Proxmox may ignore the format of a clone."""
    extra = spec.disks.extra if spec.disks else ()
    return frozenset((d.storage or spec.storage or "", d.format) for d in extra if d.format)


def _memory_mib(config: Mapping[str, str]) -> int:
    text = config.get("memory", "512").partition(",")[0].removeprefix("current=")
    return int(text) if text.isdigit() else 512


def _is_linked(spec: ProxmoxMachineSpec, details: TemplateDetails, storage: str) -> bool:
    """Whether the clone is linked: as the spec says, else wherever the storage allows it."""
    if spec.full is not None:
        return not spec.full
    return details.linkable and not storage and not spec.format


def _iso_storage(given: PlacementInput, verdict: HostVerdict) -> str:
    """The storage for the bootstrap ISO; a local one if possible."""
    hosts = [h for h in given.hosts if h.key == verdict.key]
    stores = [s for h in hosts for s in h.stores.values() if "iso" in s.content and s.active]
    return min(stores, key=lambda s: (s.shared, s.name)).name if stores else ""
