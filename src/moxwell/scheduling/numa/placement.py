"""Chooses NUMA nodes and cores for a guest: inside one node where it fits, else over few."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from moxwell.scheduling.numa.cores import choose_cpus, free_cores, whole_cores
from moxwell.scheduling.numa.guests import (
    MAX_NUMA,
    GuestCpuUse,
    free_memory,
    free_pages,
    pinned_cpus,
    shared_cpus,
)
from moxwell.scheduling.numa.topology import HostTopology

MAX_SEARCH = 8  # nodes of which all combinations are tried


@dataclass(frozen=True, slots=True)
class GuestShape:
    """The CPUs and memory that a guest requires; ``huge_page_mib`` is 0, 2 or 1024."""

    vcpus: int
    memory_mib: int
    pinned: bool = False
    huge_page_mib: int = 0


@dataclass(frozen=True, slots=True)
class GuestNumaNode:
    """A NUMA node of the guest: its vCPUs and memory, and the host's node and CPUs for them."""

    host: int
    vcpus: tuple[int, ...]
    memory_mib: int
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NumaPlacement:
    """Where a guest runs; ``cpus`` of pinned guests stand in the order of its vCPUs."""

    nodes: tuple[GuestNumaNode, ...]
    emulator_cpus: frozenset[int] = frozenset()

    @property
    def cpus(self) -> tuple[int, ...]:
        return tuple(cpu for node in self.nodes for cpu in node.cpus)


@dataclass(frozen=True, slots=True)
class NoNumaPlacement:
    """Why the guest does not fit on the host."""

    message: str


def place(
    topology: HostTopology,
    guests: Iterable[GuestCpuUse],
    shape: GuestShape,
    *,
    overcommit: float = 1.0,
    near: Sequence[frozenset[int]] = (),
) -> NumaPlacement | NoNumaPlacement:
    """
    Place a guest beside others; shared vCPUs per CPU stay below ``overcommit``.

    ``near`` has the NUMA nodes of each PCI device of the guest. A guest is not divided for them:
    of as many nodes those near most devices are taken.
    """
    host = _Host(topology, tuple(guests), overcommit)
    if problem := _impossible(shape) or host.lacks(shape):
        return NoNumaPlacement(problem)
    numbers = [node.number for node in topology.nodes]
    for count in range(1, min(len(numbers), MAX_NUMA, shape.vcpus) + 1):
        found = [p for c in _sets(host, numbers, count) if (p := host.on(c, shape)) is not None]
        if found:
            return min(found, key=lambda p: (_far_devices(p, near), host.left_over(p)))
    return NoNumaPlacement(host.refusal(shape))


def _impossible(shape: GuestShape) -> str:
    if shape.vcpus < 1 or shape.memory_mib < 1:
        return "a guest has at least one vCPU and 1 MiB of memory"
    if shape.huge_page_mib and shape.memory_mib % shape.huge_page_mib:
        return (
            f"{shape.memory_mib} MiB of memory is not a multiple of huge pages of"
            f" {shape.huge_page_mib} MiB"
        )
    return ""


def _sets(host: "_Host", numbers: list[int], count: int) -> Iterable[tuple[int, ...]]:
    """Combinations of nodes; of hosts with many, only the nodes with most free memory."""
    best = sorted(numbers, key=lambda n: (-host.memory[n], n))[:MAX_SEARCH]
    return combinations(sorted(best), count)


class _Host:
    """What is free on a host."""

    def __init__(
        self, topology: HostTopology, guests: tuple[GuestCpuUse, ...], overcommit: float
    ) -> None:
        self._topology = topology
        self._taken = pinned_cpus(guests)
        self._shared = shared_cpus(topology, guests)
        self.memory = free_memory(topology, guests)
        shared = [guest for guest in guests if not guest.pinned]
        self._vcpus = sum(guest.vcpus for guest in shared)
        self._node_vcpus = {
            node.number: sum(guest.bound_vcpus.get(node.number, 0) for guest in shared)
            for node in topology.nodes
        }
        self._overcommit = overcommit
        self._pages = {size: free_pages(topology, guests, size) for size in (2, 1024)}

    def lacks(self, shape: GuestShape) -> str:
        """What the host as a whole lacks; found before combinations of nodes are tried."""
        memory = sum(max(free, 0) for free in self.memory.values())
        if memory < shape.memory_mib:
            return f"{shape.memory_mib} MiB of memory are asked for, {memory} MiB are free"
        free = sum(len(self._free(node.number)) for node in self._topology.nodes)
        if shape.pinned and free < shape.vcpus:
            return f"{shape.vcpus} CPUs are asked for, {free} are free for pinned guests"
        if not shape.pinned and not self._has_shared_room(shape.vcpus):
            return f"{shape.vcpus} vCPUs are asked for beside {self._vcpus} on shared CPUs"
        return ""

    def on(self, nodes: tuple[int, ...], shape: GuestShape) -> NumaPlacement | None:
        """Place the guest on exactly these nodes, if it fits."""
        memory = _memory_parts(shape, len(nodes))
        counts = _even_parts(shape.vcpus, len(nodes))
        pages = self._pages.get(shape.huge_page_mib, {})
        if any(
            self.memory[n] < part or pages.get(n, part) < part
            for n, part in zip(nodes, memory, strict=True)
        ):
            return None
        made, first = list[GuestNumaNode](), 0
        for node, count, part in zip(nodes, counts, memory, strict=True):
            cpus = self._pinned(node, count) if shape.pinned else ()
            if cpus is None or (not shape.pinned and not self._has_node_room(node, count)):
                return None
            made.append(GuestNumaNode(node, tuple(range(first, first + count)), part, cpus))
            first += count
        return self._finished(tuple(made), nodes)

    def left_over(self, placement: NumaPlacement) -> tuple[int, int, tuple[int, ...]]:
        """What stays free on the chosen nodes: the smallest rest is the best fit."""
        hosts = [node.host for node in placement.nodes]
        memory = sum(self.memory[host] for host in hosts)
        cores = sum(len(self._free(host)) for host in hosts)
        return cores - len(placement.cpus), memory, tuple(hosts)

    def refusal(self, shape: GuestShape) -> str:
        if shape.huge_page_mib:
            return f"no NUMA nodes have enough huge pages of {shape.huge_page_mib} MiB free"
        if shape.pinned:
            return f"no NUMA nodes have {shape.vcpus} whole cores free beside the shared guests"
        return f"no NUMA nodes have {shape.vcpus} vCPUs and {shape.memory_mib} MiB free together"

    def _has_shared_room(self, vcpus: int) -> bool:
        return self._vcpus + vcpus <= len(self._shared) * self._overcommit

    def _has_node_room(self, node: int, vcpus: int) -> bool:
        return self._node_vcpus[node] + vcpus <= self._on(node, self._shared) * self._overcommit

    def _on(self, node: int, cpus: frozenset[int]) -> int:
        return sum(1 for cpu in self._topology.usable(node) if cpu.number in cpus)

    def _free(self, node: int) -> tuple[int, ...]:
        cpus = (c for c in self._topology.usable(node) if c.number not in self._taken)
        return tuple(c.number for c in cpus)

    def _pinned(self, node: int, count: int) -> tuple[int, ...] | None:
        cores = free_cores(self._topology.usable(node), self._taken)
        return choose_cpus(cores, count)

    def _finished(
        self, made: tuple[GuestNumaNode, ...], nodes: tuple[int, ...]
    ) -> NumaPlacement | None:
        pinned = {cpu for node in made for cpu in node.cpus}
        if not pinned:
            return NumaPlacement(made)
        rest = self._shared - whole_cores(self._topology, pinned)
        if len(rest) * self._overcommit < self._vcpus:
            return None  # shared guests would lose the CPUs that they need
        if any(self._on(n, rest) * self._overcommit < self._node_vcpus[n] for n in nodes):
            return None  # so would those that are bound to one of the nodes
        near = {c.number for node in nodes for c in self._topology.usable(node)}
        return NumaPlacement(made, frozenset(rest & near or rest))


def _far_devices(placement: NumaPlacement, near: Sequence[frozenset[int]]) -> int:
    hosts = {node.host for node in placement.nodes}
    return sum(not hosts & nodes for nodes in near)


def _even_parts(total: int, count: int) -> list[int]:
    part, rest = divmod(total, count)
    return [part + (index < rest) for index in range(count)]


def _memory_parts(shape: GuestShape, count: int) -> list[int]:
    """Divide memory so that the parts sum up to it; huge pages stay whole."""
    unit = shape.huge_page_mib or 1
    return [part * unit for part in _even_parts(shape.memory_mib // unit, count)]
