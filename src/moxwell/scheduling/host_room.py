"""What a host has free for new guests, and where on it a guest would go. Pure."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from moxwell.scheduling.guest_sizes import GuestSize
from moxwell.scheduling.inventory_model import HostKey
from moxwell.scheduling.numa.guests import GuestCpuUse
from moxwell.scheduling.numa.host_numa import HostNuma
from moxwell.scheduling.numa.placement import NumaPlacement


class HostedGuest(NamedTuple):
    """A guest on a host: its size, what it uses of CPUs and NUMA nodes, and these nodes."""

    size: GuestSize
    use: GuestCpuUse
    numa_nodes: tuple[int, ...] = ()  # empty: Proxmox and the kernel decide


@dataclass(frozen=True, slots=True)
class HostRoom:
    """What a host has free for new guests, overcommitment included."""

    key: HostKey
    cpus: int
    memory_bytes: int
    disk_bytes: int
    online: bool = True
    arch: str = "amd64"
    zone: str = ""  # empty: the host's name
    numa: HostNuma | None = None  # None: guests are not placed by NUMA node

    @property
    def zone_name(self) -> str:
        return self.zone or self.key.name

    def fits(self, size: GuestSize) -> bool:
        return self.host(size) is not None

    def shortage(self, size: GuestSize) -> str:
        """Which resource is short for a guest; empty if none is, NUMA nodes aside."""
        if not self.online:
            return "the host is offline"
        for name, needed, free in (
            ("CPUs", size.cpus, self.cpus),
            ("bytes of memory", size.memory_bytes, self.memory_bytes),
            ("bytes of disk", size.disk_bytes, self.disk_bytes),
        ):
            if needed > free:
                return f"{size.name} needs {needed} {name}, {max(0, free)} are free"
        return ""

    def host(self, size: GuestSize) -> HostedGuest | None:
        """A guest of the size on this host; None if it has no room."""
        if self.shortage(size):
            return None
        memory = size.guest_memory_mib
        if self.numa is None:
            return HostedGuest(size, GuestCpuUse(size.cpus, memory))
        found = self.numa.place(size.cpus, memory)
        if not isinstance(found, NumaPlacement):
            return None
        use = _use(size, found, self.numa.huge_page_mib)
        return HostedGuest(size, use, tuple(sorted(use.bound)))

    def less(self, guest: HostedGuest) -> "HostRoom":
        """The room that a guest leaves."""
        numa = self.numa
        if numa is not None:
            numa = replace(numa, guests=(*numa.guests, guest.use))
        return replace(
            self,
            cpus=self.cpus - guest.size.cpus,
            memory_bytes=self.memory_bytes - guest.size.memory_bytes,
            disk_bytes=self.disk_bytes - guest.size.disk_bytes,
            numa=numa,
        )

    def more(self, cpus: int, memory_bytes: int, use: GuestCpuUse | None = None) -> "HostRoom":
        """The room when a guest is gone; ``use`` is what it uses of CPUs and NUMA nodes."""
        numa = self.numa
        if numa is not None and use in numa.guests:
            at = numa.guests.index(use)
            numa = replace(numa, guests=(*numa.guests[:at], *numa.guests[at + 1 :]))
        return replace(
            self,
            cpus=self.cpus + cpus,
            memory_bytes=self.memory_bytes + memory_bytes,
            numa=numa,
        )


def _use(size: GuestSize, found: NumaPlacement, huge_page_mib: int) -> GuestCpuUse:
    """What a guest uses of its host where it was placed."""
    bound: dict[int, int] = {}
    vcpus: dict[int, int] = {}
    for node in found.nodes:
        bound[node.host] = bound.get(node.host, 0) + node.memory_mib
        vcpus[node.host] = vcpus.get(node.host, 0) + len(node.vcpus)
    pinned = frozenset(found.cpus)
    return GuestCpuUse(size.cpus, size.guest_memory_mib, pinned, bound, huge_page_mib, vcpus)
