"""
Sizes, hosts and NUMA nodes for planned nodes, decided together. Pure.

Packing decides which pods share a node and what the node may be; each offering is looked at alone.
:func:`assign_hosts` then gives the nodes of one batch their place: the largest first, each the
cheapest size that holds its pods, on the host and the NUMA nodes that it fills best, so that no
host is promised twice. With ``tight`` a node may also get the smallest size that holds its pods
(:func:`tight_size`), which fixed families mostly exceed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from moxwell.scheduling.guest_offerings import FAMILY, FITTED, LABELS, HostRoom
from moxwell.scheduling.guest_sizes import DISK_GIB, EPHEMERAL_STORAGE, GuestSize, make_size
from moxwell.scheduling.inventory_model import GIB, MIB, HostKey
from moxwell.scheduling.numa.guests import GuestCpuUse
from moxwell.scheduling.numa.placement import GuestShape, NumaPlacement, place
from moxwell.scheduling.numa.topology import HostTopology
from moxwell.scheduling.packing.results import PlannedClaim
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.scheduling.resource_lists import CPU, MEMORY, MILLI, PODS, ResourceList, less
from moxwell.scheduling.well_known_labels import (
    ARCH,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODE_POOL,
    OS,
    REGION,
    ZONE,
)

_MOST_GIB_FOR_PODS = 4  # more memory does not allow more pods


@dataclass(frozen=True, slots=True)
class NodeDemand:
    """A planned node: what pods and daemon pods request, and which labels it may have."""

    name: str
    requests: ResourceList = field(hash=False)
    requirements: tuple[LabelRequirement, ...] = ()
    pinned: bool = False
    huge_page_mib: int = 0


@dataclass(frozen=True, slots=True)
class AssignableHost:
    """What a host has free, its topology if it is known, and the guests on it."""

    room: HostRoom
    topology: HostTopology | None = None
    guests: tuple[GuestCpuUse, ...] = ()
    overcommit: float = 1.0


class NodeAssignment(NamedTuple):
    """The size and host of a planned node; ``numa`` is None where the topology is unknown."""

    size: GuestSize
    host: HostKey
    numa: NumaPlacement | None


@dataclass(frozen=True, slots=True)
class HostAssignments:
    """The places of planned nodes by name, and why others have none."""

    assigned: dict[str, NodeAssignment] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def price(self) -> float:
        return sum(each.size.price for each in self.assigned.values())


def node_demand(name: str, claim: PlannedClaim, *, pinned: bool = False) -> NodeDemand:
    """A planned claim as a demand; its requirements decide which sizes and hosts are allowed."""
    return NodeDemand(name, claim.requests, tuple(claim.requirements.entries.values()), pinned)


def tight_size(requests: ResourceList) -> GuestSize | None:
    """The smallest size that holds these requests; None if no size can."""
    cpus = max(1, -(-requests.get(CPU, 0) // MILLI))
    gib = max(1, -(-requests.get(MEMORY, 0) // (MILLI * GIB)))
    disk = max(DISK_GIB, -(-requests.get(EPHEMERAL_STORAGE, 0) // (MILLI * GIB)))
    while True:
        size = make_size(cpus, gib * GIB, FITTED, disk_gib=disk)
        short = _short(size, requests)
        if not short:
            return size
        if short - {CPU, MEMORY, PODS} or (PODS in short and gib >= _MOST_GIB_FOR_PODS):
            return None
        cpus += CPU in short
        gib += bool(short & {MEMORY, PODS})


def _short(size: GuestSize, requests: ResourceList) -> set[str]:
    """The resources of which a size has too little."""
    free = less(size.capacity, size.overhead.all)
    return {name for name, amount in requests.items() if amount > free.get(name, 0)}


def assign_hosts(
    demands: Iterable[NodeDemand],
    sizes: Sequence[GuestSize],
    hosts: Iterable[AssignableHost],
    *,
    tight: bool = False,
) -> HostAssignments:
    """Assign planned nodes to hosts; the result does not depend on the order of the arguments."""
    free = {host.room.key: host for host in hosts}
    found = HostAssignments()
    for demand in sorted(demands, key=_largest_first):
        options = _options(demand, sizes, tight)
        best = min(_places(demand, options, free), key=_rank, default=None)
        if best is None:
            found.refused[demand.name] = _why(demand, options, free)
            continue
        found.assigned[demand.name] = best.assignment
        free[best.assignment.host] = best.after
    return found


class _Place(NamedTuple):
    assignment: NodeAssignment
    after: AssignableHost


def _largest_first(demand: NodeDemand) -> tuple[int, int, str]:
    return -demand.requests.get(MEMORY, 0), -demand.requests.get(CPU, 0), demand.name


def _options(demand: NodeDemand, sizes: Sequence[GuestSize], tight: bool) -> list[GuestSize]:
    """The sizes that hold the pods of a node."""
    found = {s.name: s for s in sizes if not _short(s, demand.requests)}
    if tight and (own := tight_size(demand.requests)) is not None:
        found.setdefault(own.name, own)
    return sorted(found.values(), key=lambda s: (s.price, s.name))


def _places(
    demand: NodeDemand, options: Sequence[GuestSize], free: dict[HostKey, AssignableHost]
) -> Iterable[_Place]:
    for size in options:
        for host in free.values():
            if not host.room.fits(size) or not _allows(demand, size, host.room):
                continue
            placed = _placed(demand, size, host)
            if placed is not None:
                yield placed


def _placed(demand: NodeDemand, size: GuestSize, host: AssignableHost) -> _Place | None:
    numa: NumaPlacement | None = None
    mebibytes = -(-size.memory_bytes // MIB)
    if host.topology is not None:
        shape = GuestShape(size.cpus, mebibytes, demand.pinned, demand.huge_page_mib)
        found = place(host.topology, host.guests, shape, overcommit=host.overcommit)
        if not isinstance(found, NumaPlacement):
            return None
        numa = found
    room = replace(
        host.room,
        cpus=host.room.cpus - size.cpus,
        memory_bytes=host.room.memory_bytes - size.memory_bytes,
        disk_bytes=host.room.disk_bytes - size.disk_bytes,
    )
    use = guest_use(size, numa, demand.huge_page_mib)
    after = replace(host, room=room, guests=(*host.guests, use))
    return _Place(NodeAssignment(size, host.room.key, numa), after)


def guest_use(size: GuestSize, numa: NumaPlacement | None, huge_page_mib: int = 0) -> GuestCpuUse:
    """What a guest of a size uses of its host's CPUs and NUMA nodes."""
    mebibytes = -(-size.memory_bytes // MIB)
    if numa is None:
        return GuestCpuUse(size.cpus, mebibytes)
    bound: dict[int, int] = {}
    for node in numa.nodes:
        bound[node.host] = bound.get(node.host, 0) + node.memory_mib
    return GuestCpuUse(size.cpus, mebibytes, frozenset(numa.cpus), bound, huge_page_mib)


def _rank(found: _Place) -> tuple[float, int, int, int, HostKey, str]:
    """Cheapest, on the fewest NUMA nodes, where the least memory and CPUs stay free."""
    each, room = found.assignment, found.after.room
    nodes = len(each.numa.nodes) if each.numa else 1
    return each.size.price, nodes, room.memory_bytes, room.cpus, each.host, each.size.name


def _allows(demand: NodeDemand, size: GuestSize, room: HostRoom) -> bool:
    """Whether a node of the size on the host may have the labels that it would get."""
    labels = {
        INSTANCE_TYPE: size.name, CAPACITY_TYPE: size.capacity_type, FAMILY: size.family,
        REGION: room.key.region, ZONE: room.zone_name, ARCH: room.arch, OS: "linux",
    }  # fmt: skip
    for each in demand.requirements:
        own = labels.get(each.key)
        if own is None:
            foreign = each.key not in LABELS.well_known or each.key == NODE_POOL
            if not foreign and not each.is_negative:
                return False
        elif not each.has(own):
            return False
    return True


def _why(
    demand: NodeDemand, options: Sequence[GuestSize], free: dict[HostKey, AssignableHost]
) -> str:
    if not options:
        return "no size is large enough for its pods"
    allowed = [(s, h) for s in options for h in free.values() if _allows(demand, s, h.room)]
    if not allowed:
        return "its requirements exclude every size on every host"
    if not any(h.room.fits(s) for s, h in allowed):
        least = allowed[0][0]
        return f"no host has room for {least.name}, the cheapest size that holds its pods"
    return "no host has NUMA nodes with enough free CPUs and memory together"
