"""The CPUs, caches and NUMA nodes of a Proxmox host."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class TopologySource(StrEnum):
    """Where the topology of a host comes from."""

    AGENT = "agent"
    FILE = "file"
    GUESS = "guess"


@dataclass(frozen=True, slots=True, order=True)
class HostCpu:
    """A logical CPU: its physical core, L3 cache, NUMA node and socket."""

    number: int
    core: int
    cache: int
    node: int
    socket: int


@dataclass(frozen=True, slots=True)
class HostNumaNode:
    """The memory of a NUMA node; huge pages are counted by their size in MiB."""

    number: int
    memory_mib: int
    huge_pages: Mapping[int, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class HostTopology:
    """A host; guests never get its reserved CPUs and memory."""

    cpus: tuple[HostCpu, ...]
    nodes: tuple[HostNumaNode, ...]
    reserved_cpus: frozenset[int] = frozenset()
    reserved_memory_mib: int = 0
    source: TopologySource = TopologySource.AGENT
    devices: Mapping[str, int] = field(default_factory=dict, hash=False)  # NUMA node by PCI address

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset(cpu.number for cpu in self.cpus)

    def usable(self, node: int) -> tuple[HostCpu, ...]:
        """The CPUs of a NUMA node that guests may use."""
        return tuple(c for c in self.cpus if c.node == node and c.number not in self.reserved_cpus)

    def memory_mib(self, node: int) -> int:
        """The memory of a NUMA node for guests, without its share of the reserved memory."""
        total = sum(n.memory_mib for n in self.nodes) or 1
        found = next(n for n in self.nodes if n.number == node)
        return found.memory_mib - -(-self.reserved_memory_mib * found.memory_mib // total)


def cores_of(cpus: Iterable[HostCpu]) -> dict[int, tuple[HostCpu, ...]]:
    """Group CPUs by physical core."""
    grouped: dict[int, list[HostCpu]] = {}
    for cpu in sorted(cpus):
        grouped.setdefault(cpu.core, []).append(cpu)
    return {core: tuple(found) for core, found in grouped.items()}
