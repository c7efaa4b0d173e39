"""
Chooses the spot guests that are deleted to free capacity for other guests. Pure.

A need is an amount of CPUs and memory and the hosts on which it may be. It is met on the host where
the fewest spot guests must be deleted; among equal hosts the cheapest guests are. If no host has
enough spot guests, none is deleted. The capacity of guests that are being deleted counts as free
soon. The disk of a guest is not counted as free for another one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import comb, inf
from typing import NamedTuple

from moxwell.scheduling.host_checks import free_room
from moxwell.scheduling.inventory_model import CandidateHost, HostKey
from moxwell.scheduling.numa.guests import GuestCpuUse
from moxwell.scheduling.simulate import PlacementInput

_MOST_COMBINATIONS = 10_000  # of so many guests of a host; above, the largest are taken first


@dataclass(frozen=True, slots=True)
class SpotGuest:
    """
    A guest of a spot node claim: the UID of the claim, its host and what it uses there.

    ``use`` is its CPUs and NUMA nodes, if guests are placed by them.
    """

    claim: str
    host: HostKey
    cpus: int
    memory_bytes: int
    price: float
    leaving: bool = False
    use: GuestCpuUse | None = None


class FreeRoom(NamedTuple):
    """What a host has free; negative if it is overcommitted, infinite if it is not checked."""

    cpus: float
    memory_bytes: float


@dataclass(frozen=True, slots=True)
class RoomNeed:
    """What needs capacity, how much, and what is free on the hosts that it may use."""

    name: str
    cpus: int
    memory_bytes: int
    free: Mapping[HostKey, FreeRoom] = field(hash=False)


@dataclass(frozen=True, slots=True)
class SpotInterruption:
    """A spot guest that is deleted, and what needs its capacity."""

    guest: SpotGuest
    why: str


def interruptions(
    needs: Iterable[RoomNeed],
    guests: Iterable[SpotGuest],
    emptied: Mapping[HostKey, str] | None = None,
) -> tuple[SpotInterruption, ...]:
    """
    The guests that end now; ``emptied`` are hosts that all of them leave, and why.

    Needs are met one after the other, the largest first; what one takes, the next one cannot have.
    """
    hosts = emptied or {}
    ledger = _Ledger(guests)
    found = [SpotInterruption(g, hosts[g.host]) for g in ledger.staying() if g.host in hosts]
    ledger.end(i.guest for i in found)
    for need in sorted(needs, key=lambda n: (-n.memory_bytes, -n.cpus, n.name)):
        best = _cheapest(need, ledger, hosts)
        if best is None:
            continue
        host, ended = best
        ledger.end(ended)
        ledger.use(host, need)
        found += [SpotInterruption(g, f"{need.name} needs its capacity") for g in ended]
    return tuple(found)


class _Ledger:
    """The spot guests that stay, and the capacity that needs have gained or used so far."""

    def __init__(self, guests: Iterable[SpotGuest]) -> None:
        self._here: dict[HostKey, list[SpotGuest]] = {}
        self._gained: dict[HostKey, FreeRoom] = {}
        for guest in sorted(guests, key=lambda g: (g.price, g.claim)):
            if guest.leaving:
                self._gain(guest.host, guest.cpus, guest.memory_bytes)
            else:
                self._here.setdefault(guest.host, []).append(guest)

    def staying(self) -> Iterator[SpotGuest]:
        for key in sorted(self._here):
            yield from self._here[key]

    def on(self, host: HostKey) -> Sequence[SpotGuest]:
        return self._here.get(host, ())

    def end(self, guests: Iterable[SpotGuest]) -> None:
        for guest in tuple(guests):
            self._here[guest.host].remove(guest)
            self._gain(guest.host, guest.cpus, guest.memory_bytes)

    def use(self, host: HostKey, need: RoomNeed) -> None:
        self._gain(host, -need.cpus, -need.memory_bytes)

    def missing(self, host: HostKey, need: RoomNeed) -> FreeRoom:
        """What a need lacks on a host."""
        free, more = need.free[host], self._gained.get(host, FreeRoom(0, 0))
        return FreeRoom(
            need.cpus - free.cpus - more.cpus,
            need.memory_bytes - free.memory_bytes - more.memory_bytes,
        )

    def _gain(self, host: HostKey, cpus: int, memory_bytes: int) -> None:
        known = self._gained.get(host, FreeRoom(0, 0))
        self._gained[host] = FreeRoom(known.cpus + cpus, known.memory_bytes + memory_bytes)


def _cheapest(
    need: RoomNeed, ledger: _Ledger, without: Collection[HostKey]
) -> tuple[HostKey, tuple[SpotGuest, ...]] | None:
    """The host on which a need costs least, and the guests that end for it."""
    best: tuple[tuple[int, float, HostKey], tuple[SpotGuest, ...]] | None = None
    for host in sorted(need.free.keys() - without):
        ended = _enough(ledger.on(host), ledger.missing(host, need))
        if ended is None:
            continue
        rank = (len(ended), sum(g.price for g in ended), host)
        if best is None or rank < best[0]:
            best = rank, ended
    return None if best is None else (best[0][2], best[1])


def _enough(guests: Sequence[SpotGuest], missing: FreeRoom) -> tuple[SpotGuest, ...] | None:
    """The fewest, then cheapest, guests with the missing capacity; None if all have less."""
    if missing.cpus <= 0 and missing.memory_bytes <= 0:
        return ()
    if not _covers(guests, missing):
        return None
    for count in range(1, len(guests) + 1):
        if comb(len(guests), count) > _MOST_COMBINATIONS:
            return _largest_first(guests, missing)
        found = [g for g in combinations(guests, count) if _covers(g, missing)]
        if found:
            return min(found, key=lambda chosen: sum(g.price for g in chosen))
    return tuple(guests)


def _largest_first(guests: Sequence[SpotGuest], missing: FreeRoom) -> tuple[SpotGuest, ...]:
    """Guests by their share of what is missing, without those that turn out to be unneeded."""

    def share(guest: SpotGuest) -> float:
        of = ((guest.cpus, missing.cpus), (guest.memory_bytes, missing.memory_bytes))
        return sum(min(1.0, has / wanted) for has, wanted in of if wanted > 0)

    kept: list[SpotGuest] = []
    for guest in sorted(guests, key=lambda g: (-share(g), g.price, g.claim)):
        if _covers(kept, missing):
            break
        kept.append(guest)
    for guest in sorted(kept, key=lambda g: (-g.price, g.claim)):
        rest = [g for g in kept if g is not guest]
        if _covers(rest, missing):
            kept = rest
    return tuple(kept)


def _covers(guests: Iterable[SpotGuest], missing: FreeRoom) -> bool:
    chosen = tuple(guests)
    return (
        sum(g.cpus for g in chosen) >= missing.cpus
        and sum(g.memory_bytes for g in chosen) >= missing.memory_bytes
    )


def placement_need(
    name: str, given: PlacementInput, guests: Iterable[SpotGuest]
) -> RoomNeed | None:
    """
    The need of a machine that no host has room for; None if spot guests do not keep it out.

    Its hosts are those that nothing but CPUs and memory of spot guests rules out.
    """
    if given.place().chosen is not None:
        return None
    taken: dict[HostKey, list[SpotGuest]] = {}
    for guest in guests:
        taken.setdefault(guest.host, []).append(guest)
    without = replace(given, hosts=tuple(_without(h, taken.get(h.key, ())) for h in given.hosts))
    fitting = {v.key for v in without.place().verdicts if v.fits}
    if not fitting:
        return None
    free = {h.key: _free(given, h) for h in given.hosts if h.key in fitting}
    return RoomNeed(name, given.request.cpus, given.request.memory_bytes, free)


def _without(host: CandidateHost, guests: Iterable[SpotGuest]) -> CandidateHost:
    ended = tuple(guests)
    return replace(
        host,
        cpus_taken=host.cpus_taken - sum(g.cpus for g in ended),
        memory_taken=host.memory_taken - sum(g.memory_bytes for g in ended),
    )


def _free(given: PlacementInput, host: CandidateHost) -> FreeRoom:
    cpus, memory_bytes = free_room(given.request, host, given.pending)
    return FreeRoom(inf if cpus is None else cpus, inf if memory_bytes is None else memory_bytes)
