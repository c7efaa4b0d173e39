"""
Model of the inventory: observed hosts, guests and storages, an indexed view, and its changes.

Pure. Figures that change all the time (usage, uptime) are stored but not compared, so that an idle
region with ten thousand guests causes no events.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeVar

from moxwell.pve import ownership, property_strings, run_states
from moxwell.pve.endpoints.cluster import ClusterResource


@dataclass(frozen=True, slots=True)
class ObservedHost:
    """A host in the inventory."""

    name: str
    online: bool
    cpus: int = 0
    memory_bytes: int = 0
    memory_used_bytes: int = field(default=0, compare=False)
    cpu_load: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class ObservedStorage:
    """A storage as one host sees it."""

    name: str
    host: str
    type: str = ""
    content: frozenset[str] = frozenset()
    shared: bool = False
    available: bool = True
    total_bytes: int = 0
    used_bytes: int = field(default=0, compare=False)

    @property
    def free_bytes(self) -> int:
        return max(0, self.total_bytes - self.used_bytes)


@dataclass(frozen=True, slots=True)
class ObservedGuest:
    """
    A guest; ``status`` is ``stopped``, ``unknown`` or a state of :mod:`moxwell.pve.run_states`.
    """

    vmid: int
    host: str
    kind: Literal["qemu", "lxc"] = "qemu"
    name: str = ""
    status: str = "unknown"
    template: bool = False
    tags: tuple[str, ...] = ()
    pool: str = ""
    lock: str = ""
    hastate: str = ""
    cpus: float = 0.0
    memory_bytes: int = 0
    disk_bytes: int = 0
    uptime_seconds: int = field(default=0, compare=False)
    memory_used_bytes: int = field(default=0, compare=False)
    cpu_load: float = field(default=0.0, compare=False)  # of its own vCPUs, 0..1

    @property
    def running(self) -> bool:
        return run_states.executes(self.status)

    @property
    def has_process(self) -> bool:
        """Whether it must be stopped before it can be destroyed."""
        return run_states.has_process(self.status)

    @property
    def owner_keys(self) -> tuple[str, ...]:
        """Owner keys in its tags (see :mod:`moxwell.pve.ownership`)."""
        return ownership.keys_in_tags(self.tags)


Seen = ObservedHost | ObservedStorage | ObservedGuest
K = TypeVar("K")
S = TypeVar("S", ObservedHost, ObservedStorage, ObservedGuest)


@dataclass(frozen=True, slots=True)
class InventoryChange:
    """An object was added (no ``before``), removed (no ``after``) or changed."""

    region: str
    before: Seen | None
    after: Seen | None


@dataclass(frozen=True, slots=True)
class InventoryHealth:
    """Whether the region answers, since when, and the error and its reason if it does not."""

    region: str
    reachable: bool
    since: float
    error: str = field(default="", compare=False)
    reason: str = field(default="", compare=False)


InventoryEvent = InventoryChange | InventoryHealth


@dataclass(frozen=True)
class InventoryView:
    """A region at one moment; indices are built on first use."""

    hosts: Mapping[str, ObservedHost] = field(default_factory=dict)
    storages: Mapping[tuple[str, str], ObservedStorage] = field(
        default_factory=dict
    )  # (host, name)
    guests: Mapping[int, ObservedGuest] = field(default_factory=dict)
    pools: frozenset[str] = frozenset()

    @cached_property
    def by_name(self) -> Mapping[str, tuple[ObservedGuest, ...]]:
        return _grouped((guest.name, guest) for guest in self.guests.values())

    @cached_property
    def by_host(self) -> Mapping[str, tuple[ObservedGuest, ...]]:
        return _grouped((guest.host, guest) for guest in self.guests.values())

    @cached_property
    def by_owner(self) -> Mapping[str, tuple[ObservedGuest, ...]]:
        return _grouped((key, guest) for guest in self.guests.values() for key in guest.owner_keys)

    @cached_property
    def templates(self) -> tuple[ObservedGuest, ...]:
        return tuple(guest for guest in self.guests.values() if guest.template)


def _grouped(pairs: Iterable[tuple[str, ObservedGuest]]) -> dict[str, tuple[ObservedGuest, ...]]:
    groups: dict[str, list[ObservedGuest]] = {}
    for key, guest in pairs:
        groups.setdefault(key, []).append(guest)
    return {key: tuple(guests) for key, guests in groups.items()}


def guest_of(row: ClusterResource) -> ObservedGuest:
    return ObservedGuest(
        vmid=row.vmid,
        host=row.node,
        kind="lxc" if row.type == "lxc" else "qemu",
        name=row.name,
        status=row.status or "unknown",
        template=row.template,
        tags=property_strings.tags(row.tags) if row.tags else (),
        pool=row.pool,
        lock=row.lock,
        hastate=row.hastate,
        cpus=max(0.0, row.maxcpu),
        memory_bytes=max(0, row.maxmem),
        disk_bytes=max(0, row.maxdisk),
        uptime_seconds=max(0, row.uptime),
        memory_used_bytes=max(0, row.mem),
        cpu_load=max(0.0, row.cpu),
    )


def host_of(row: ClusterResource) -> ObservedHost:
    return ObservedHost(
        row.node,
        row.status == "online",
        max(0, int(row.maxcpu)),
        max(0, row.maxmem),
        max(0, row.mem),
        max(0.0, row.cpu),
    )


def storage_of(row: ClusterResource) -> ObservedStorage:
    return ObservedStorage(
        name=row.storage,
        host=row.node,
        type=row.plugintype,
        content=frozenset(c for c in row.content.split(",") if c),
        shared=row.shared,
        available=row.status == "available",
        total_bytes=max(0, row.maxdisk),
        used_bytes=max(0, row.disk),
    )


def view_of(rows: Iterable[ClusterResource]) -> InventoryView:
    """Build the view of one list."""
    hosts: dict[str, ObservedHost] = {}
    storages: dict[tuple[str, str], ObservedStorage] = {}
    guests: dict[int, ObservedGuest] = {}
    pools: set[str] = set()
    for row in rows:
        if row.type in {"qemu", "lxc"} and row.vmid > 0:
            guests[row.vmid] = guest_of(row)
        elif row.type == "node":
            hosts[row.node] = host_of(row)
        elif row.type == "storage":
            storages[row.node, row.storage] = storage_of(row)
        elif row.type == "pool":
            pools.add(row.pool or row.id.removeprefix("/pool/"))
    return InventoryView(hosts, storages, guests, frozenset(pools))


def differences(region: str, old: InventoryView, new: InventoryView) -> Iterator[InventoryChange]:
    """Yield the changes between two views."""
    yield from _compared(region, old.hosts, new.hosts)
    yield from _compared(region, old.storages, new.storages)
    yield from _compared(region, old.guests, new.guests)


def _compared(region: str, old: Mapping[K, S], new: Mapping[K, S]) -> Iterator[InventoryChange]:
    for key, value in new.items():
        was = old.get(key)
        if was is not value and was != value:
            yield InventoryChange(region, was, value)
    for key, value in old.items():
        if key not in new:
            yield InventoryChange(region, value, None)
