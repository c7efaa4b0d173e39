"""
Chooses the host of a guest, and explains the choice host by host. Pure.

The input is a :class:`PlacementRequest`, the candidate hosts, the matching templates, the placed
replicas and the pending guests. The result names the chosen host, if any, and for every other host
what it lacks, with figures. Ties are decided by name, so equal input gives equal results.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from moxwell.scheduling.inventory_model import (
    GIB,
    MIB,
    CandidateHost,
    HostKey,
    HostStorage,
    PendingGuest,
    PlacedReplica,
    Template,
)

_FILES = frozenset(
    {"dir", "nfs", "cifs", "cephfs", "glusterfs", "btrfs"}
)  # storages that hold other formats than raw


@dataclass(frozen=True, slots=True)
class OvercommitLimits:
    """How much of a host may be allocated, in percent of its capacity; 0 disables the check."""

    cpu_percent: int = 0
    memory_percent: int = 100
    storage_percent: int = 100


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """What a guest needs of a host."""

    cpus: int
    memory_bytes: int
    disk_bytes: int = 0
    storage: str = ""  # of the disks; empty: that of the template
    extra_bytes: Mapping[str, int] = field(default_factory=dict)  # extra disks, by storage
    zone: str = ""
    region: str = ""
    hosts: frozenset[str] | None = None
    target: str = ""
    spread: str = "Prefer"  # Prefer, Require or Ignore: one host for each replica
    linked: bool = False  # linked clone: the template must be on the same host or on shared storage
    thin: bool = False  # the boot disk allocates no space at first
    needs_iso: bool = False
    iso_storage: str = ""  # the only allowed storage for the bootstrap ISO
    bridges: frozenset[str] = frozenset()  # named by network devices
    other_bridges: frozenset[str] = frozenset()  # of network devices that name none
    mappings: frozenset[str] = frozenset()  # of PCI devices
    firewall_groups: frozenset[str] = frozenset()
    ha_groups: frozenset[str] = frozenset()
    formats: frozenset[tuple[str, str]] = frozenset()  # (storage or "", disk format)
    limits: OvercommitLimits = OvercommitLimits()


@dataclass(frozen=True, slots=True)
class HostVerdict:
    """The verdict on one host: it fits, or what it lacks."""

    key: HostKey
    zone: str
    why_not: tuple[str, ...] = ()
    template: Template | None = None
    migrate_after_clone: bool = False  # clone on the template's host, then migrate
    replicas: int = 0
    zone_replicas: int = 0
    load: float = 0.0
    new_replicas: int = 0  # without those that a rollout is about to delete
    zone_new_replicas: int = 0

    @property
    def fits(self) -> bool:
        return not self.why_not

    def __str__(self) -> str:
        if self.why_not:
            return f"{self.key}: {'; '.join(self.why_not)}"
        how = ", cloned elsewhere and migrated" if self.migrate_after_clone else ""
        return f"{self.key}: fits ({self.replicas} replicas there, load {self.load:.0%}{how})"


@dataclass(frozen=True, slots=True)
class Placement:
    """The chosen host, and the verdict on every host."""

    chosen: HostVerdict | None
    verdicts: tuple[HostVerdict, ...]

    def explain(self) -> tuple[str, ...]:
        """One line per host, the chosen one first."""
        rest = [v for v in self.verdicts if v is not self.chosen]
        first = [f"{self.chosen} <- chosen"] if self.chosen else []
        return tuple(first + [str(v) for v in rest])

    def sentence(self) -> str:
        """One line for a condition: the chosen host, or what every host lacks."""
        if self.chosen:
            return f"placed on {self.chosen.key}"
        if not self.verdicts:
            return "no host matches: none is known in the regions and zones asked for"
        return "no host has room: " + " | ".join(str(v) for v in self.verdicts)


@dataclass(frozen=True, slots=True)
class _HostUsage:
    cpus_taken: int
    memory_taken: int
    disk_taken: Mapping[str, int]


def choose_host(
    request: PlacementRequest,
    hosts: Iterable[CandidateHost],
    *,
    templates: Sequence[Template],
    replicas: Iterable[PlacedReplica] = (),
    pending: Iterable[PendingGuest] = (),
) -> Placement:
    """
    Choose the best fitting host: fewest replicas in its zone, fewest on it, least load.

    Replicas of an earlier template count last, so that a rollout ends spread as evenly as a new
    group.
    """
    unseen, placed = tuple(pending), tuple(replicas)
    candidates = [h for h in hosts if _is_candidate(request, h)]
    verdicts = tuple(
        _evaluate(request, h, templates, placed, unseen) for h in sorted(candidates, key=_by_key)
    )
    fitting = [v for v in verdicts if v.fits]
    return Placement(min(fitting, key=_rank, default=None), verdicts)


def _by_key(host: CandidateHost) -> HostKey:
    return host.key


def _rank(verdict: HostVerdict) -> tuple[int, int, int, int, bool, float, HostKey]:
    return (
        verdict.zone_new_replicas,
        verdict.new_replicas,
        verdict.zone_replicas,
        verdict.replicas,
        verdict.migrate_after_clone,
        round(verdict.load, 2),
        verdict.key,
    )


def _is_candidate(request: PlacementRequest, host: CandidateHost) -> bool:
    """Whether the host is a candidate: the region and zone match."""
    return not (request.region and host.key.region != request.region) and not (
        request.zone and host.zone != request.zone
    )


def _evaluate(
    request: PlacementRequest,
    host: CandidateHost,
    templates: Sequence[Template],
    placed: Sequence[PlacedReplica],
    pending: Sequence[PendingGuest],
) -> HostVerdict:
    usage = _usage(host, pending)
    template, migrate_after_clone = _reach(request, host, templates)
    replicas = sum(n.key == host.key for n in placed)
    in_zone = [n for n in placed if n.zone == host.zone and n.key.region == host.key.region]
    in_zone = [] if request.zone else in_zone
    why = [
        *_availability(request, host),
        *_affinity(request, replicas),
        *_template(request, host, template, templates),
        *_compute(request, host, usage),
        *_storage(request, host, usage, template),
        *_capability_reasons(request, host),
    ]
    return HostVerdict(
        host.key,
        host.zone,
        tuple(why),
        template,
        migrate_after_clone,
        replicas,
        len(in_zone),
        _load(host, usage),
        sum(n.key == host.key and not n.leaving for n in placed),
        sum(not n.leaving for n in in_zone),
    )


def _usage(host: CandidateHost, pending: Sequence[PendingGuest]) -> _HostUsage:
    here = [f for f in pending if f.key == host.key]
    disk: dict[str, int] = {}
    for guest in pending:
        store = host.stores.get(guest.storage)
        shared = store is not None and store.shared and guest.key.region == host.key.region
        if guest.storage and (guest.key == host.key or shared):
            disk[guest.storage] = disk.get(guest.storage, 0) + guest.disk_bytes
    return _HostUsage(
        host.cpus_taken + sum(f.cpus for f in here),
        host.memory_taken + sum(f.memory_bytes for f in here),
        disk,
    )


def _load(host: CandidateHost, usage: _HostUsage) -> float:
    memory = usage.memory_taken / host.memory_bytes if host.memory_bytes else 1.0
    cpu = usage.cpus_taken / host.cpus if host.cpus else 1.0
    return (memory + cpu) / 2


def _availability(request: PlacementRequest, host: CandidateHost) -> list[str]:
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


def _affinity(request: PlacementRequest, replicas: int) -> list[str]:
    if request.spread == "Require" and replicas:
        return [f"already runs {replicas} of these replicas, and they must be on different hosts"]
    return []


def _reach(
    request: PlacementRequest, host: CandidateHost, templates: Sequence[Template]
) -> tuple[Template | None, bool]:
    """The best template for the host: on it, then on shared storage, then clone and migrate."""
    ours = [t for t in templates if t.key.region == host.key.region]
    here = [t for t in ours if t.key == host.key]
    wanted = host.stores.get(request.storage or host.capabilities.storage)
    # Proxmox clones to another host only if the storage of the copy is shared too
    reaches = wanted is None or wanted.shared
    shared = [t for t in ours if t.shared and reaches and all(s in host.stores for s in t.storages)]
    for found in (here, shared):
        if found:
            return min(found, key=lambda t: (t.key, t.vmid)), False
    if ours and not request.linked:
        return min(ours, key=lambda t: (t.key, t.vmid)), True
    return None, False


def _template(
    request: PlacementRequest,
    host: CandidateHost,
    template: Template | None,
    templates: Sequence[Template],
) -> list[str]:
    if template is not None:
        return []
    elsewhere = sorted({str(t.key) for t in templates if t.key.region == host.key.region})
    if elsewhere and request.linked:
        return [f"a linked clone needs the template here; it is on {', '.join(elsewhere)}"]
    return ["no matching template in this region"]


def _compute(request: PlacementRequest, host: CandidateHost, usage: _HostUsage) -> list[str]:
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
    return _free(request, host, _usage(host, tuple(pending)))


def _free(
    request: PlacementRequest, host: CandidateHost, usage: _HostUsage
) -> tuple[int | None, int | None]:
    limits = request.limits
    cpu = limits.cpu_percent if host.cpu_percent is None else host.cpu_percent
    memory = limits.memory_percent if host.memory_percent is None else host.memory_percent
    return (
        host.cpus * cpu // 100 - usage.cpus_taken if cpu else None,
        host.memory_bytes * memory // 100 - usage.memory_taken if memory else None,
    )


def _storage(
    request: PlacementRequest, host: CandidateHost, usage: _HostUsage, template: Template | None
) -> list[str]:
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


def _capability_reasons(request: PlacementRequest, host: CandidateHost) -> list[str]:
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
