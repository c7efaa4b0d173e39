"""
Assigns the room of hosts to the new node claims of a run, so that none is assigned twice.

Each claim holds a slot: the cheapest of its types on a host that has room beside the slots of the
other claims. Of equal offerings the one on the fewest NUMA nodes is taken, then that in the region
and on the host with the fewest claims of the same pool, then the host that the guest fills best.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from moxwell.scheduling.host_room import HostedGuest, HostRoom
from moxwell.scheduling.inventory_model import HostKey
from moxwell.scheduling.packing.instance_types import InstanceType, Offering
from moxwell.scheduling.packing.type_table import TypeTable, bits
from moxwell.scheduling.requirement_sets import RequirementSet

_EQUAL = 1e-9
_Rank = tuple[float, int, int, int, int, int, HostKey, int]


@dataclass(frozen=True, slots=True)
class HostSlot:
    """The type of a node claim, as a number of its table, on a host."""

    pool: str
    type: int
    host: HostKey
    price: float
    guest: HostedGuest


@dataclass(frozen=True, slots=True)
class ClaimDemand:
    """What a claim may become: its number, pool and table, the types and the requirements."""

    number: int
    pool: str
    table: TypeTable
    types: int
    requirements: RequirementSet


def visible_rooms(types: Iterable[InstanceType]) -> dict[HostKey, HostRoom]:
    """The hosts of all offerings; empty if an offering does not say its host."""
    found: dict[HostKey, HostRoom] = {}
    for each in types:
        for offering in each.offerings:
            if offering.room is None or each.guest is None:
                return {}
            found[offering.room.key] = offering.room
    return found


def planned_slots(demands: Iterable[ClaimDemand]) -> tuple[HostSlot | None, ...]:
    """
    Slots for claims that were packed without a look at the hosts, each beside those before it.

    None for a claim that no host has room for, and for all where the hosts are not visible.
    """
    wanted = tuple(demands)
    tables = {id(d.table): d.table for d in wanted}
    ledger = HostLedger(visible_rooms(t for table in tables.values() for t in table.types))
    found = []
    for demand in wanted:
        slot = ledger.slot(demand) if ledger.is_visible else None
        ledger.hold(demand.number, slot)
        found.append(slot)
    return tuple(found)


class HostLedger:
    """The slots of the claims of one run."""

    def __init__(self, rooms: Mapping[HostKey, HostRoom]) -> None:
        self._rooms = rooms
        self._slots: dict[int, HostSlot] = {}
        self._left: dict[HostKey, HostRoom] = {}
        self._hosted: dict[tuple[HostKey, str, int], HostedGuest | None] = {}

    @property
    def is_visible(self) -> bool:
        """Whether the hosts are known."""
        return bool(self._rooms)

    def hold(self, number: int, slot: HostSlot | None) -> None:
        """Give a claim its slot; the one that it had is free again."""
        before = self._slots.get(number)
        if slot is None or slot == before:
            return
        self._slots[number] = slot
        changed = {slot.host} | ({before.host} if before is not None else set())
        for key in changed:
            self._left.pop(key, None)
        self._hosted = {k: g for k, g in self._hosted.items() if k[0] not in changed}

    def slot(self, demand: ClaimDemand) -> HostSlot | None:
        """The best slot beside those of other claims; None if no host has room for any type."""
        own = self._slots.get(demand.number)
        best: tuple[_Rank, HostSlot] | None = None
        for price, index in demand.table.by_price(demand.requirements):
            if price == inf or (best is not None and price > best[0][0] + _EQUAL):
                break
            if not demand.types >> index & 1:
                continue
            for found in self._slots_of(demand, index):
                if own is not None and (found.type, found.host) == (own.type, own.host):
                    return own
                rank = self._rank(demand, found)
                if best is None or rank < best[0]:
                    best = rank, found
        return None if best is None else best[1]

    def launchable(self, demand: ClaimDemand) -> int:
        """The types that some host can hold beside the slots of other claims."""
        return sum(
            1 << index
            for index in bits(demand.types)
            if next(self._slots_of(demand, index), None) is not None
        )

    def refusals(self, demand: ClaimDemand, slot: HostSlot) -> tuple[tuple[str, str], ...]:
        """Why the other hosts were not chosen for the type of a slot."""
        chosen = demand.table.types[slot.type]
        assert chosen.guest is not None
        found = []
        for offering, own in demand.table.offerings[slot.type]:
            assert offering.room is not None
            key = offering.room.key
            if key == slot.host:
                continue
            if not demand.table.allows(demand.requirements, own):
                why = "the requirements of the node exclude it"
            else:
                room = self._room(demand.number, offering)
                why = room.shortage(chosen.guest) or self._refusal(demand, slot, offering)
            found.append((str(key), why))
        return tuple(sorted(found))

    def _refusal(self, demand: ClaimDemand, slot: HostSlot, offering: Offering) -> str:
        if not offering.available:
            return "its offering is unavailable"
        if self._guest(demand, slot.type, offering) is None:
            return "its NUMA nodes have too little room"
        if offering.price > slot.price + _EQUAL:
            return "its offering is dearer"
        return f"{slot.host} ranks before it (NUMA nodes, spread, best fit)"

    def _slots_of(self, demand: ClaimDemand, index: int) -> Iterator[HostSlot]:
        for offering in demand.table.launchable(index, demand.requirements):
            guest = self._guest(demand, index, offering)
            if guest is not None and offering.room is not None:
                yield HostSlot(demand.pool, index, offering.room.key, offering.price, guest)

    def _guest(self, demand: ClaimDemand, index: int, offering: Offering) -> HostedGuest | None:
        size, room = demand.table.types[index].guest, offering.room
        assert size is not None
        assert room is not None
        own = self._slots.get(demand.number)
        if own is not None and own.host == room.key:
            return self._room(demand.number, offering).host(size)
        known = (room.key, size.name, room.disk_bytes)
        if known not in self._hosted:
            self._hosted[known] = self._room(demand.number, offering).host(size)
        return self._hosted[known]

    def _room(self, number: int, offering: Offering) -> HostRoom:
        """What the host of an offering has free beside the slots of other claims."""
        assert offering.room is not None
        key = offering.room.key
        own = self._slots.get(number)
        if own is not None and own.host == key:
            left = self._without(key, number)
        else:
            if key not in self._left:
                self._left[key] = self._without(key, None)
            left = self._left[key]
        taken = self._rooms[key].disk_bytes - left.disk_bytes
        return replace(left, disk_bytes=offering.room.disk_bytes - taken)

    def _without(self, key: HostKey, number: int | None) -> HostRoom:
        room = self._rooms[key]
        for other, slot in self._slots.items():
            if slot.host == key and other != number:
                room = room.less(slot.guest)
        return room

    def _rank(self, demand: ClaimDemand, found: HostSlot) -> _Rank:
        others = [
            s.host for n, s in self._slots.items() if s.pool == demand.pool and n != demand.number
        ]
        left = self._left.get(found.host) or self._rooms[found.host]
        return (
            found.price,
            len(found.guest.numa_nodes),
            sum(key.region == found.host.region for key in others),
            others.count(found.host),
            left.memory_bytes - found.guest.size.memory_bytes,
            left.cpus - found.guest.size.cpus,
            found.host,
            found.type,
        )
