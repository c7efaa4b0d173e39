"""
Checks of one host for a placement: each returns what the host lacks, with figures. Pure.

An empty list means that the host passes the check.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from moxwell.scheduling.inventory_model import (
    GIB,
    MIB,
    CandidateHost,
    HostStorage,
    PendingGuest,
    Template,
)
from moxwell.scheduling.placement_model import PlacementRequest

_FILES = frozenset(
    {"dir", "nfs", "cifs", "cephfs", "glusterfs", "btrfs"}
)  # storages that hold other formats than raw


@dataclass(frozen=True, slots=True)
class HostUsage:
    """What guests use of a host, pending ones included."""

    cpus_taken: int
    memory_taken: int
    disk_taken: Mapping[str, int]


def usage_of(host: CandidateHost, pending: Sequence[PendingGuest]) -> HostUsage:
    """What guests use of a host, with the pending ones on it."""
    here = [f for f in pending if f.key == host.key]
    disk: dict[str, int] = {}
    for guest in pending:
        store = host.stores.get(guest.storage)
        shared = store is not None and store.shared and guest.key.region == host.key.region
        if guest.storage and (guest.key == host.key or shared):
            disk[guest.storage] = disk.get(guest.storage, 0) + guest.disk_bytes
    return HostUsage(
        host.cpus_taken + sum(f.cpus for f in here),
        host.memory_taken + sum(f.memory_bytes for f in here),
        disk,
    )


def load_of(host: CandidateHost, usage: HostUsage) -> float:
    """The share of CPUs and memory of a host that is used."""
    memory = usage.memory_taken / host.memory_bytes if host.memory_bytes else 1.0
    cpu = usage.cpus_taken / host.cpus if host.cpus else 1.0
    return (memory + cpu) / 2


def availability(request: PlacementRequest, host: CandidateHost) -> list[str]:
    """Why a host may not be used at all."""
    why = []
    if not host.online:
        why.append("host is offline")
    if host.capabilities.maintenance:
        why.append("host is in maintenance mode")
    if request.target and host.key.name != request.target:
        why.append(f"the machine requires host {request.target}")
    elif request.hosts is not None and host.key.name not in request.hosts:
        why.append("not among the allowed hosts")
    return why


def affinity(request: PlacementRequest, replicas: int) -> list[str]:
    """Why a host may not run another replica."""
    if request.spread == "Require" and replicas:
        return [f"already runs {replicas} of these replicas, and they must be on different hosts"]
    return []


def template_reasons(
    request: PlacementRequest,
    host: CandidateHost,
    template: Template | None,
    templates: Sequence[Template],
) -> list[str]:
    """Why no template can be cloned to a host."""
    if template is not None:
        return []
    elsewhere = sorted({str(t.key) for t in templates if t.key.region == host.key.region})
    if elsewhere and request.linked:
        return [f"a linked clone needs the template here; it is on {', '.join(elsewhere)}"]
    return ["no matching template in this region"]


def compute_reasons(request: PlacementRequest, host: CandidateHost, usage: HostUsage) -> list[str]:
    """Which CPUs and how much memory a host lacks."""
    why = []
    cpus, memory_bytes = _free(request, host, usage)
    if host.cpus and request.cpus > host.cpus:
        why.append(f"needs {request.cpus} CPUs, the host has {host.cpus}")
    elif cpus is not None and cpus < request.cpus:
        why.append(f"needs {request.cpus} CPUs, {max(cpus, 0)} are free")
    if memory_bytes is not None and memory_bytes < request.memory_bytes:
        needed, free_mib = request.memory_bytes // MIB, max(memory_bytes, 0) // MIB
        why.append(f"needs {needed} MiB memory, {free_mib} MiB are free")
    return why


def free_room(
    request: PlacementRequest, host: CandidateHost, pending: Iterable[PendingGuest]
) -> tuple[int | None, int | None]:
    """The CPUs and the memory that a host has free; None if they are not checked."""
    return _free(request, host, usage_of(host, tuple(pending)))


def _free(
    request: PlacementRequest, host: CandidateHost, usage: HostUsage
) -> tuple[int | None, int | None]:
    limits = request.limits
    cpu = limits.cpu_percent if host.cpu_percent is None else host.cpu_percent
    memory = limits.memory_percent if host.memory_percent is None else host.memory_percent
    return (
        host.cpus * cpu // 100 - usage.cpus_taken if cpu else None,
        host.memory_bytes * memory // 100 - usage.memory_taken if memory else None,
    )


def storage_reasons(
    request: PlacementRequest, host: CandidateHost, usage: HostUsage, template: Template | None
) -> list[str]:
    """What the storages of a host lack for the disks and the bootstrap ISO."""
    why = _iso(request, host)
    for name, size in sorted(_demand(request, host, template).items()):
        store = host.stores.get(name)
        why.extend(_store_usage(request, name, size, store, usage.disk_taken.get(name, 0)))
    for name, format_ in sorted(request.formats):
        at = host.stores.get(name or _own_storage(request, host, template))
        if at is not None and at.type and format_ != "raw" and at.type not in _FILES:
            why.append(f"storage {at.name} ({at.type}) does not support {format_} images")
    return why


def _iso(request: PlacementRequest, host: CandidateHost) -> list[str]:
    named = request.iso_storage or host.capabilities.iso_storage
    if named and request.needs_iso:
        store = host.stores.get(named)
        if store is None:
            return [f"storage {named} for ISO images does not exist there"]
        return [] if "iso" in store.content else [f"storage {named} does not allow ISO images"]
    if request.needs_iso and not any("iso" in s.content and s.active for s in host.stores.values()):
        return ["no storage there allows ISO images"]
    return []


def capability_reasons(request: PlacementRequest, host: CandidateHost) -> list[str]:
    """Bridges and mappings that the host lacks; unknown capabilities are no reason."""
    has, why = host.capabilities, []
    if has.bridges is not None:
        loose = (
            frozenset({has.bridge})
            if has.bridge and request.other_bridges
            else request.other_bridges
        )
        missing = sorted((request.bridges | loose) - has.bridges)
        why += [
            f"host {host.key.name} has no bridge {name} that the token may use" for name in missing
        ]
    if has.mappings is not None:
        lacking = sorted(request.mappings - has.mappings)
        why += [f"host {host.key.name} has no device mapped as {name}" for name in lacking]
    return why + _region_capability_reasons(request, host)


def _region_capability_reasons(request: PlacementRequest, host: CandidateHost) -> list[str]:
    """Firewall and HA groups that the region lacks."""
    has, why = host.capabilities, []
    if has.firewall_groups is not None:
        lacking = sorted(request.firewall_groups - has.firewall_groups)
        why += [f"region {host.key.region} has no firewall group {name}" for name in lacking]
    if has.ha_groups is not None:
        lacking = sorted(request.ha_groups - has.ha_groups)
        why += [f"region {host.key.region} has no HA group or rule {name}" for name in lacking]
    return why


def _own_storage(request: PlacementRequest, host: CandidateHost, template: Template | None) -> str:
    own = request.storage or host.capabilities.storage
    return own or (min(template.storages) if template and template.storages else "")


def _demand(
    request: PlacementRequest, host: CandidateHost, template: Template | None
) -> dict[str, int]:
    """Bytes by storage: the boot disk on its own storage, extra disks on theirs."""
    want = {name: size for name, size in request.extra_bytes.items() if name}
    own = _own_storage(request, host, template)
    loose = request.extra_bytes.get("", 0)
    if own:
        thin = request.linked or (request.thin and not host.capabilities.storage)
        boot = 0 if thin else max(request.disk_bytes, template.disk_bytes if template else 0)
        want[own] = want.get(own, 0) + boot + loose
    return want


def _store_usage(
    request: PlacementRequest, name: str, size: int, store: HostStorage | None, taken: int
) -> list[str]:
    if store is None:
        return [f"storage {name} does not exist there"]
    if not store.active:
        return [f"storage {name} is not active"]
    if "images" not in store.content:
        return [f"storage {name} does not allow disk images"]
    if not request.limits.storage_percent:
        return []
    free = store.free_bytes * request.limits.storage_percent // 100 - taken
    if free >= size:
        return []
    return [f"needs {_gib(size)} GiB on storage {name}, {_gib(max(free, 0))} GiB are free"]


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}".removesuffix(".0")
