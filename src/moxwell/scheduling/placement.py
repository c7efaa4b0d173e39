"""
Where a guest goes: a pure choice among hosts, which explains itself host by host.

In flow an :class:`Ask`, the hosts of all regions in question, the templates that match, the
replicas already placed and the guests in flight. Out flows a :class:`Placement`: a chosen host or
none, and for each host why not. A dead host only removes itself. What is scarce is named with
figures, as "not enough room" without them helps nobody. Ties are decided by name, so the same
world gives the same answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from moxwell.scheduling.inventory_model import (
    GIB,
    MIB,
    Flight,
    Host,
    HostKey,
    Neighbour,
    Store,
    Template,
)

_FILES = frozenset({"dir", "nfs", "cifs", "cephfs", "glusterfs", "btrfs"})  # more than raw


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a host may be promised, in percent of what it has; 0 does not look."""

    cpu_percent: int = 0
    memory_percent: int = 100
    storage_percent: int = 100


@dataclass(frozen=True, slots=True)
class Ask:
    """What a guest needs of a host."""

    cpus: int
    memory_bytes: int
    disk_bytes: int = 0
    storage: str = ""  # where the disks go; empty: where the template's are
    extra_bytes: Mapping[str, int] = field(default_factory=dict)  # further disks, per storage
    zone: str = ""
    region: str = ""
    hosts: frozenset[str] | None = None
    target: str = ""
    spread: str = "Prefer"  # Prefer, Require or Ignore: one host for each replica
    linked: bool = False  # the clone must lie beside its template
    thin: bool = False  # the boot disk takes no room of its own at first
    needs_iso: bool = False
    iso_storage: str = ""  # this one and no other
    bridges: frozenset[str] = frozenset()  # that network devices name
    other_bridges: frozenset[str] = frozenset()  # for devices that leave it to the zone
    mappings: frozenset[str] = frozenset()  # of PCI devices
    firewall_groups: frozenset[str] = frozenset()
    ha_groups: frozenset[str] = frozenset()
    formats: frozenset[tuple[str, str]] = frozenset()  # (storage or "", disk format)
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Verdict:
    """One host: fit, or the sentences that say why not."""

    key: HostKey
    zone: str
    why_not: tuple[str, ...] = ()
    template: Template | None = None
    detour: bool = False  # clone beside the template, then migrate here
    replicas: int = 0
    zone_replicas: int = 0
    load: float = 0.0

    @property
    def fits(self) -> bool:
        return not self.why_not

    def __str__(self) -> str:
        if self.why_not:
            return f"{self.key}: {'; '.join(self.why_not)}"
        how = ", cloned elsewhere and migrated" if self.detour else ""
        return f"{self.key}: fits ({self.replicas} replicas there, load {self.load:.0%}{how})"


@dataclass(frozen=True, slots=True)
class Placement:
    """The choice, and what was thought of each host."""

    chosen: Verdict | None
    verdicts: tuple[Verdict, ...]

    def explain(self) -> tuple[str, ...]:
        """A line for each host, the chosen one first."""
        rest = [v for v in self.verdicts if v is not self.chosen]
        first = [f"{self.chosen} <- chosen"] if self.chosen else []
        return tuple(first + [str(v) for v in rest])

    def sentence(self) -> str:
        """One line for a condition: the chosen host, or what is missing where."""
        if self.chosen:
            return f"placed on {self.chosen.key}"
        if not self.verdicts:
            return "no host matches: none is known in the regions and zones asked for"
        return "no host has room: " + " | ".join(str(v) for v in self.verdicts)


@dataclass(frozen=True, slots=True)
class _Room:
    cpus_taken: int
    memory_taken: int
    disk_taken: Mapping[str, int]


def choose_host(
    ask: Ask,
    hosts: Iterable[Host],
    *,
    templates: Sequence[Template],
    neighbours: Iterable[Neighbour] = (),
    in_flight: Iterable[Flight] = (),
) -> Placement:
    """The host on which the guest goes, and why the others were not it."""
    flights, near = tuple(in_flight), tuple(neighbours)
    asked = [h for h in hosts if _in_question(ask, h)]
    verdicts = tuple(_judge(ask, h, templates, near, flights) for h in sorted(asked, key=_by_key))
    fitting = [v for v in verdicts if v.fits]
    return Placement(min(fitting, key=_rank, default=None), verdicts)


def _by_key(host: Host) -> HostKey:
    return host.key


def _rank(verdict: Verdict) -> tuple[int, int, bool, float, HostKey]:
    return (
        verdict.zone_replicas,
        verdict.replicas,
        verdict.detour,
        round(verdict.load, 2),
        verdict.key,
    )


def _in_question(ask: Ask, host: Host) -> bool:
    """Hosts of other regions and zones are not even worth a sentence."""
    return not (ask.region and host.key.region != ask.region) and not (
        ask.zone and host.zone != ask.zone
    )


def _judge(
    ask: Ask,
    host: Host,
    templates: Sequence[Template],
    near: Sequence[Neighbour],
    flights: Sequence[Flight],
) -> Verdict:
    room = _room(host, flights)
    template, detour = _reach(ask, host, templates)
    replicas = sum(n.key == host.key for n in near)
    why = [
        *_availability(ask, host),
        *_affinity(ask, replicas),
        *_template(ask, host, template, templates),
        *_compute(ask, host, room),
        *_storage(ask, host, room, template),
        *_fittings(ask, host),
    ]
    return Verdict(
        host.key,
        host.zone,
        tuple(why),
        template,
        detour,
        replicas,
        sum(n.zone == host.zone and n.key.region == host.key.region for n in near)
        if not ask.zone
        else 0,
        _load(host, room),
    )


def _room(host: Host, flights: Sequence[Flight]) -> _Room:
    here = [f for f in flights if f.key == host.key]
    disk: dict[str, int] = {}
    for flight in flights:
        store = host.stores.get(flight.storage)
        shared = store is not None and store.shared and flight.key.region == host.key.region
        if flight.storage and (flight.key == host.key or shared):
            disk[flight.storage] = disk.get(flight.storage, 0) + flight.disk_bytes
    return _Room(
        host.cpus_taken + sum(f.cpus for f in here),
        host.memory_taken + sum(f.memory_bytes for f in here),
        disk,
    )


def _load(host: Host, room: _Room) -> float:
    memory = room.memory_taken / host.memory_bytes if host.memory_bytes else 1.0
    cpu = room.cpus_taken / host.cpus if host.cpus else 1.0
    return (memory + cpu) / 2


def _availability(ask: Ask, host: Host) -> list[str]:
    why = []
    if not host.online:
        why.append("host is offline")
    if host.fittings.maintenance:
        why.append("host is in maintenance mode")
    if ask.target and host.key.name != ask.target:
        why.append(f"the machine asks for host {ask.target}")
    elif ask.hosts is not None and host.key.name not in ask.hosts:
        why.append("not among the allowed hosts")
    return why


def _affinity(ask: Ask, replicas: int) -> list[str]:
    if ask.spread == "Require" and replicas:
        return [f"already holds {replicas} of these replicas and they must be apart"]
    return []


def _reach(ask: Ask, host: Host, templates: Sequence[Template]) -> tuple[Template | None, bool]:
    """The best template for this host: here, then shared, then by clone and migrate."""
    ours = [t for t in templates if t.key.region == host.key.region]
    here = [t for t in ours if t.key == host.key]
    shared = [t for t in ours if t.shared and all(s in host.stores for s in t.storages)]
    for found in (here, shared):
        if found:
            return min(found, key=lambda t: (t.key, t.vmid)), False
    if ours and not ask.linked:
        return min(ours, key=lambda t: (t.key, t.vmid)), True
    return None, False


def _template(
    ask: Ask, host: Host, template: Template | None, templates: Sequence[Template]
) -> list[str]:
    if template is not None:
        return []
    elsewhere = sorted({str(t.key) for t in templates if t.key.region == host.key.region})
    if elsewhere and ask.linked:
        return [f"a linked clone needs the template here; it is on {', '.join(elsewhere)}"]
    return ["no matching template in this region"]


def _compute(ask: Ask, host: Host, room: _Room) -> list[str]:
    why = []
    if host.cpus and ask.cpus > host.cpus:
        why.append(f"needs {ask.cpus} CPUs, the host has {host.cpus}")
    elif ask.limits.cpu_percent:
        free = host.cpus * ask.limits.cpu_percent // 100 - room.cpus_taken
        if free < ask.cpus:
            why.append(f"needs {ask.cpus} CPUs, {max(free, 0)} are free")
    if ask.limits.memory_percent:
        spare = host.memory_bytes * ask.limits.memory_percent // 100 - room.memory_taken
        if spare < ask.memory_bytes:
            why.append(
                f"needs {ask.memory_bytes // MIB} MiB memory, {max(spare, 0) // MIB} MiB are free"
            )
    return why


def _storage(ask: Ask, host: Host, room: _Room, template: Template | None) -> list[str]:
    why = _iso(ask, host)
    for name, size in sorted(_demand(ask, host, template).items()):
        store = host.stores.get(name)
        why.extend(_store_room(ask, name, size, store, room.disk_taken.get(name, 0)))
    for name, format_ in sorted(ask.formats):
        at = host.stores.get(name or _own_storage(ask, host, template))
        if at is not None and at.type and format_ != "raw" and at.type not in _FILES:
            why.append(f"storage {at.name} ({at.type}) holds no {format_} images")
    return why


def _iso(ask: Ask, host: Host) -> list[str]:
    named = ask.iso_storage or host.fittings.iso_storage
    if named and ask.needs_iso:
        store = host.stores.get(named)
        if store is None:
            return [f"storage {named} for ISO images is not there"]
        return [] if "iso" in store.content else [f"storage {named} takes no ISO images"]
    if ask.needs_iso and not any("iso" in s.content and s.active for s in host.stores.values()):
        return ["no storage there takes ISO images"]
    return []


def _fittings(ask: Ask, host: Host) -> list[str]:
    """What guests are plugged into; what nobody could tell is no reason."""
    has, why = host.fittings, []
    if has.bridges is not None:
        loose = frozenset({has.bridge}) if has.bridge and ask.other_bridges else ask.other_bridges
        missing = sorted((ask.bridges | loose) - has.bridges)
        why += [f"host {host.key.name} has no bridge {name} that we may use" for name in missing]
    if has.mappings is not None:
        lacking = sorted(ask.mappings - has.mappings)
        why += [f"host {host.key.name} has no device mapped as {name}" for name in lacking]
    return why + _region_fittings(ask, host)


def _region_fittings(ask: Ask, host: Host) -> list[str]:
    """What all hosts of a region have or lack."""
    has, why = host.fittings, []
    if has.firewall_groups is not None:
        lacking = sorted(ask.firewall_groups - has.firewall_groups)
        why += [f"region {host.key.region} has no firewall group {name}" for name in lacking]
    if has.ha_groups is not None:
        lacking = sorted(ask.ha_groups - has.ha_groups)
        why += [f"region {host.key.region} has no HA group or rule {name}" for name in lacking]
    return why


def _own_storage(ask: Ask, host: Host, template: Template | None) -> str:
    own = ask.storage or host.fittings.storage
    return own or (min(template.storages) if template and template.storages else "")


def _demand(ask: Ask, host: Host, template: Template | None) -> dict[str, int]:
    """Bytes per storage: the boot disk on its own storage, further disks on theirs."""
    want = {name: size for name, size in ask.extra_bytes.items() if name}
    own = _own_storage(ask, host, template)
    loose = ask.extra_bytes.get("", 0)
    if own:
        thin = ask.linked or (ask.thin and not host.fittings.storage)
        boot = 0 if thin else max(ask.disk_bytes, template.disk_bytes if template else 0)
        want[own] = want.get(own, 0) + boot + loose
    return want


def _store_room(ask: Ask, name: str, size: int, store: Store | None, taken: int) -> list[str]:
    if store is None:
        return [f"storage {name} is not there"]
    if not store.active:
        return [f"storage {name} is not active"]
    if "images" not in store.content:
        return [f"storage {name} does not take disk images"]
    if not ask.limits.storage_percent:
        return []
    free = store.free_bytes * ask.limits.storage_percent // 100 - taken
    if free >= size:
        return []
    return [f"needs {_gib(size)} GiB on storage {name}, {_gib(max(free, 0))} GiB are free"]


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}".removesuffix(".0")
