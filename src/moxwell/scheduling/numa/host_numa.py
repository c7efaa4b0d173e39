"""A host on which guests are placed by NUMA node: its topology, its guests and the node policy."""

from dataclasses import dataclass
from enum import StrEnum

from moxwell.scheduling.numa.guests import GuestCpuUse
from moxwell.scheduling.numa.placement import (
    GuestShape,
    NoNumaPlacement,
    NumaPlacement,
    place,
)
from moxwell.scheduling.numa.topology import HostTopology


class NodePolicy(StrEnum):
    """How guests use the CPUs of a host; ``simple`` and ``static`` are those of the provider."""

    SIMPLE = "simple"  # Proxmox and the kernel decide
    NUMA = "numa"  # memory is bound to NUMA nodes, CPUs are shared
    STATIC = "static"  # memory is bound, each vCPU has a CPU of its own


@dataclass(frozen=True, slots=True)
class HostNuma:
    """The inputs of the choice of NUMA nodes for a guest."""

    topology: HostTopology
    guests: tuple[GuestCpuUse, ...]
    policy: NodePolicy
    overcommit: float = 1.0
    huge_page_mib: int = 0
    near: tuple[frozenset[int], ...] = ()  # the NUMA nodes of each PCI device of a guest

    @property
    def pins(self) -> bool:
        """Whether each vCPU gets a CPU of its own."""
        return self.policy is NodePolicy.STATIC

    def place(self, vcpus: int, memory_mib: int) -> NumaPlacement | NoNumaPlacement:
        """The NUMA nodes and CPUs for a guest, or why it does not fit."""
        shape = GuestShape(vcpus, memory_mib, self.pins, self.huge_page_mib)
        return place(self.topology, self.guests, shape, overcommit=self.overcommit, near=self.near)

    def fits(self, vcpus: int, memory_mib: int) -> bool:
        return isinstance(self.place(vcpus, memory_mib), NumaPlacement)
