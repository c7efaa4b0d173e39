"""
What the hosts of a cluster have free: guests, containers, claimed and launched machines count.

The same hosts and limits as in the placement of ``infra.machine``, so that an offering that is
available here has room there. Without ``schedulerHints.cpuAdjustment`` vCPUs are not overcommitted.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from moxwell.api.infra.cluster import ProxmoxClusterSpec
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.warm_guests import uses_no_compute
from moxwell.api.infra.zone_settings import ZoneSettings
from moxwell.pve.model import ObservedGuest
from moxwell.pve.regions import Region
from moxwell.pve.reservations import Reservation
from moxwell.scheduling.host_room import HostRoom
from moxwell.scheduling.inventory_model import HostKey, PendingGuest
from moxwell.scheduling.numa.sources import HostSettings
from moxwell.scheduling.pending_guests import pending_guest

Zones = Mapping[str, tuple[Region, ZoneSettings]]
FULL_PERCENT = 100


@dataclass(frozen=True, slots=True)
class HostState:
    """A host's room for new guests, and the share of it that is taken."""

    room: HostRoom
    load: float = 0.0
    failure_domain: str = ""
    cpu_overcommit: float = 1.0  # vCPUs per CPU


def host_states(
    spec: ProxmoxClusterSpec,
    zones: Zones,
    pending: Iterable[PendingGuest],
    storage: str = "",
    settings_of: Callable[[str, str], HostSettings | None] = lambda region, host: None,
) -> tuple[HostState, ...]:
    """
    The hosts that machines of a cluster may use; ``storage`` is that of their boot disks.

    ``settings_of`` a region and host are what a node-settings file says about it.
    """
    waiting = tuple(pending)
    return tuple(
        _state(
            _limits(spec, settings_of(region.name, host)),
            zone,
            region,
            host,
            waiting,
            storage or settings.storage,
        )
        for zone, (region, settings) in zones.items()
        for host in allowed_hosts(spec, region, settings)
    )


def with_architectures(
    states: Iterable[HostState], found: Mapping[HostKey, str]
) -> tuple[HostState, ...]:
    """The hosts with the architectures of their kernels; amd64 if unknown."""
    return tuple(
        replace(state, room=replace(state.room, arch=arch))
        if (arch := found.get(state.room.key))
        else state
        for state in states
    )


def allowed_hosts(
    spec: ProxmoxClusterSpec, region: Region, settings: ZoneSettings
) -> tuple[str, ...]:
    """The hosts of a zone that the cluster may use."""
    hosts = region.inventory.view.hosts
    return tuple(
        name
        for name in sorted(hosts)
        if (not settings.nodes or name in settings.nodes)
        and (not spec.allowed_nodes or name in spec.allowed_nodes)
    )


@dataclass(frozen=True, slots=True)
class _HostLimits:
    """How much of a host guests may get, in percent; 0 disables the check."""

    cpu_percent: int
    memory_percent: int
    reserved_cpus: int = 0
    reserved_bytes: int = 0


def _limits(spec: ProxmoxClusterSpec, settings: HostSettings | None) -> _HostLimits:
    """The limits of a host: of the file, else those of the cluster."""
    hints = spec.scheduler_hints
    cpu = hints.cpu_adjustment if hints else None
    memory = hints.memory_adjustment if hints else None
    cpu, memory = (FULL_PERCENT if given is None else given for given in (cpu, memory))
    if settings is None:
        return _HostLimits(cpu, memory)
    if settings.cpuovercommit is not None:
        cpu = round(settings.cpuovercommit * 100)
    if settings.memoryovercommit is not None:
        memory = round(settings.memoryovercommit * 100)
    return _HostLimits(cpu, memory, len(settings.reservedcpus), settings.reservedmemory)


def _state(
    limits: _HostLimits,
    zone: str,
    region: Region,
    name: str,
    pending: tuple[PendingGuest, ...],
    storage: str,
) -> HostState:
    view = region.inventory.view
    host, key = view.hosts[name], HostKey(region.name, name)
    guests = [g for g in view.by_host.get(name, ()) if not g.template and not _is_warm_guest(g)]
    here = [p for p in pending if p.key == key]
    cpus = int(sum(g.cpus for g in guests)) + sum(p.cpus for p in here)
    memory = sum(g.memory_bytes for g in guests) + sum(p.memory_bytes for p in here)
    room = HostRoom(
        key,
        _free(host.cpus - limits.reserved_cpus, cpus, limits.cpu_percent),
        _free(host.memory_bytes - limits.reserved_bytes, memory, limits.memory_percent),
        _free_disk(region, name, storage, pending),
        host.online,
        zone=region.zone_of(name),
    )
    load = (_share(cpus, host.cpus) + _share(memory, host.memory_bytes)) / 2
    overcommit = limits.cpu_percent / 100 if limits.cpu_percent else math.inf
    return HostState(room, load, zone, overcommit)


def running_memory_left(
    spec: ProxmoxClusterSpec, region: Region, host: str, settings: HostSettings | None
) -> int:
    """The memory that guests may get on a host less what running ones have; 0 if unchecked."""
    limits, view = _limits(spec, settings), region.inventory.view
    if not limits.memory_percent:
        return 0
    running = (g for g in view.by_host.get(host, ()) if g.has_process)
    total = view.hosts[host].memory_bytes - limits.reserved_bytes
    return _free(total, sum(g.memory_bytes for g in running), limits.memory_percent)


def _free(total: int, taken: int, percent: int) -> int:
    """
    What is left of a resource, negative if it is overcommitted.

    0 percent disables the check, as in schedulerHints.
    """
    return total * percent // 100 - taken if percent else total


def _share(taken: int, total: int) -> float:
    return taken / total if total else 1.0


def _free_disk(region: Region, host: str, storage: str, pending: tuple[PendingGuest, ...]) -> int:
    """Free bytes of the storage, or of the emptiest one if the template decides it."""
    found = [
        store.free_bytes - _pending_disk(region.name, host, store.name, store.shared, pending)
        for (at, name), store in region.inventory.view.storages.items()
        if at == host and store.available and "images" in store.content
        if storage in ("", name)
    ]
    return max(0, max(found, default=0))


def _pending_disk(
    region: str, host: str, storage: str, shared: bool, pending: tuple[PendingGuest, ...]
) -> int:
    return sum(
        p.disk_bytes
        for p in pending
        if p.storage == storage and p.key.region == region and (shared or p.key.name == host)
    )


def pending_guests(
    machines: Iterable[ProxmoxMachine],
    reservations: Iterable[Reservation],
    regions: Mapping[str, Region],
) -> tuple[PendingGuest, ...]:
    """Machines with a host that the inventory does not count yet."""
    waiting = []
    known = set()
    for machine in machines:
        spec = machine.spec
        host = spec.claim.host if spec.claim else spec.target
        region = regions.get(spec.region or "")
        if not host or region is None:
            continue
        known.add(machine.uid)
        vmid = spec.virtual_machine_id
        guest = region.inventory.find(vmid) if vmid is not None else None
        counted = guest is not None and bool(guest.memory_bytes)
        warm = guest is not None and _is_warm_guest(guest)
        each = pending_guest(machine, HostKey(region.name, host), counted=counted, warm=warm)
        if each is not None:
            waiting.append(each)
    rest = (r for r in reservations if r.owner not in known)
    return (*waiting, *(_reserved(r) for r in rest))


def _is_warm_guest(guest: ObservedGuest) -> bool:
    return uses_no_compute(guest.tags, has_process=guest.has_process)


def _reserved(each: Reservation) -> PendingGuest:
    key = HostKey(each.region, each.host)
    return PendingGuest(key, each.cpus, each.memory_bytes, each.storage, each.disk_bytes)
