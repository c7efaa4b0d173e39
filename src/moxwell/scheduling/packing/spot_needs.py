"""
The capacity that pods need which may not run on spot machines. Pure.

Pods that got no node are packed once more, as if the spot guests were gone. A node claim of this
packing that can be no spot machine stands for a need: its cheapest type, on each host that could
hold it. Pods that may run as spot get a spot machine in this packing, so they end no other one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from moxwell.scheduling.host_room import HostRoom
from moxwell.scheduling.inventory_model import HostKey
from moxwell.scheduling.packing.cluster import ClusterSnapshot, ProvisioningPool, SolverOptions
from moxwell.scheduling.packing.instance_types import InstanceType, Offering
from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.packing.results import PlannedClaim, SchedulingResult
from moxwell.scheduling.packing.solver import Solver
from moxwell.scheduling.resource_lists import largest, less, total
from moxwell.scheduling.spot_room import FreeRoom, RoomNeed, SpotGuest
from moxwell.scheduling.well_known_labels import SPOT

GuestsByHost = Mapping[HostKey, Sequence[SpotGuest]]


def claims_in_spot_room(
    snapshot: ClusterSnapshot,
    options: SolverOptions,
    result: SchedulingResult,
    pods: Iterable[PodDemand],
    guests: Iterable[SpotGuest],
) -> tuple[PlannedClaim, ...]:
    """The node claims for the pods that ``result`` left over, in the room of spot guests."""
    waiting = [p for p in pods if p.uid in result.failures]
    here: dict[HostKey, list[SpotGuest]] = {}
    for guest in guests:
        here.setdefault(guest.host, []).append(guest)
    if not waiting or not here:
        return ()
    pools = tuple(_pool(p, result, here) for p in snapshot.pools)
    found = Solver(replace(snapshot, pools=pools), options).solve(waiting, within_hosts=True)
    return tuple(c for c in found.claims if c.slot is not None and SPOT not in c.capacity_types)


def claim_need(claim: PlannedClaim, guests: Iterable[SpotGuest]) -> RoomNeed | None:
    """The need of such a claim; None if a host has room for it already."""
    assert claim.slot is not None
    size = claim.slot.guest.size
    rooms = [o.room for o in claim.table.launchable(claim.slot.type, claim.requirements)]
    known = tuple(guests)
    before = [_without(room, (g for g in known if g.host == room.key)) for room in rooms if room]
    if any(room.fits(size) for room in before):
        return None
    free = {room.key: FreeRoom(room.cpus, room.memory_bytes) for room in before}
    names = ", ".join(sorted(p.key for p in claim.pods)[:3])
    return RoomNeed(f"a node for {names}", size.cpus, size.memory_bytes, free)


def _pool(pool: ProvisioningPool, result: SchedulingResult, here: GuestsByHost) -> ProvisioningPool:
    """The pool with the room of spot guests, and without what planned claims use."""
    planned = [c for c in result.claims if c.pool == pool.name]
    used = total(largest(t.capacity for t in c.instance_types) for c in planned)
    limits = less(pool.limits, {n: a for n, a in used.items() if n in pool.limits})
    types = tuple(_type(t, result.claims, here) for t in pool.instance_types)
    return replace(pool, instance_types=types, limits=limits)


def _type(each: InstanceType, planned: Iterable[PlannedClaim], here: GuestsByHost) -> InstanceType:
    slots = [c.slot for c in planned if c.slot is not None]
    offerings = []
    for offering in each.offerings:
        room = offering.room
        if room is not None:
            for slot in slots:
                room = room.less(slot.guest) if slot.host == room.key else room
            for guest in here.get(room.key, ()):
                room = room.more(guest.cpus, guest.memory_bytes, guest.use)
            offering = replace(offering, room=room, available=_is_available(each, offering, room))
        offerings.append(offering)
    return replace(each, offerings=tuple(offerings))


def _is_available(each: InstanceType, offering: Offering, room: HostRoom) -> bool:
    """Whether the type fits; one that failed on the host a short time ago is not tried for it."""
    assert offering.room is not None
    if each.guest is None or not room.fits(each.guest):
        return False
    failed = not offering.available and offering.room.fits(each.guest)
    return offering.capacity_type == SPOT or not failed


def _without(room: HostRoom, guests: Iterable[SpotGuest]) -> HostRoom:
    """The room while the spot guests are there."""
    for guest in guests:
        room = room.more(-guest.cpus, -guest.memory_bytes)
    return room
