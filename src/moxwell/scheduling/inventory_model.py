"""
Hosts, storages, templates and guests as the scheduler sees them: plain values.

A host is identified by region and name, since two Proxmox clusters may both have a host ``pve``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moxwell.scheduling.numa.guests import GuestCpuUse

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True, order=True)
class HostKey:
    """The region and name of a host."""

    region: str
    name: str

    def __str__(self) -> str:
        return f"{self.region}/{self.name}"


@dataclass(frozen=True, slots=True)
class HostStorage:
    """A storage as one host sees it."""

    name: str
    free_bytes: int
    shared: bool = False
    active: bool = True
    content: frozenset[str] = frozenset({"images"})
    type: str = ""  # Proxmox's storage type; empty if unknown


@dataclass(frozen=True, slots=True)
class HostCapabilities:
    """What a host offers to guests, and the defaults of its zone."""

    bridges: frozenset[str] | None = None  # None: unknown
    mappings: frozenset[str] | None = None  # PCI resource mappings
    storage: str = ""  # default storage of the zone
    iso_storage: str = ""
    bridge: str = ""
    maintenance: bool = False
    firewall_groups: frozenset[str] | None = None  # of its region
    ha_groups: frozenset[str] | None = None  # of its region; from Proxmox VE 9 on its HA rules


@dataclass(frozen=True, slots=True)
class CandidateHost:
    """A host that a guest may be placed on, with the resources already allocated."""

    key: HostKey
    cpus: int
    memory_bytes: int
    zone: str = ""
    online: bool = True
    cpus_taken: int = 0
    memory_taken: int = 0
    stores: Mapping[str, HostStorage] = field(default_factory=dict)
    capabilities: HostCapabilities = HostCapabilities()
    cpu_percent: int | None = None  # how much of it guests may get; None: as the request says
    memory_percent: int | None = None


@dataclass(frozen=True, slots=True)
class Template:
    """A template guest: its host and the storages of its disks."""

    key: HostKey
    vmid: int
    name: str = ""
    tags: frozenset[str] = frozenset()
    storages: frozenset[str] = frozenset()
    shared: bool = False
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PlacedReplica:
    """A replica of the same group that is placed on, or has reserved, a host."""

    key: HostKey
    zone: str = ""
    leaving: bool = False  # of an earlier template: a rollout deletes it


@dataclass(frozen=True, slots=True)
class PendingGuest:
    """A guest that is claimed or reserved, but not counted by the inventory yet."""

    key: HostKey
    cpus: int
    memory_bytes: int
    storage: str = ""
    disk_bytes: int = 0
    use: GuestCpuUse | None = None  # its CPUs and NUMA nodes
