"""
What the kernel knows of an estate: hosts, storages, templates and guests as plain values.

In flow what a controller saw; out flows nothing, these are only nouns. A host is named by region
*and* name, as two Proxmox clusters both with a host ``pve`` are normal.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True, order=True)
class HostKey:
    """A host's name in the world: region and name."""

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
    type: str = ""  # Proxmox's word, empty if not known


@dataclass(frozen=True, slots=True)
class HostCapabilities:
    """What a host has that guests may be plugged into; and what its zone says they take there."""

    bridges: frozenset[str] | None = None  # None: nobody could tell
    mappings: frozenset[str] | None = None  # PCI devices by mapping
    storage: str = ""  # where disks go in this zone if the machine does not say
    iso_storage: str = ""
    bridge: str = ""
    maintenance: bool = False
    firewall_groups: frozenset[str] | None = None  # of its region
    ha_groups: frozenset[str] | None = None  # of its region; from 9 on its HA rules


@dataclass(frozen=True, slots=True)
class CandidateHost:
    """One Proxmox host and what is already promised of it."""

    key: HostKey
    cpus: int
    memory_bytes: int
    zone: str = ""
    online: bool = True
    cpus_taken: int = 0
    memory_taken: int = 0
    stores: Mapping[str, HostStorage] = field(default_factory=dict)
    capabilities: HostCapabilities = HostCapabilities()


@dataclass(frozen=True, slots=True)
class Template:
    """A template guest: where it lies and what holds its disks."""

    key: HostKey
    vmid: int
    name: str = ""
    tags: frozenset[str] = frozenset()
    storages: frozenset[str] = frozenset()
    shared: bool = False
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PlacedReplica:
    """A guest already placed, or promised a place, that belongs to the same group of replicas."""

    key: HostKey
    zone: str = ""


@dataclass(frozen=True, slots=True)
class PendingGuest:
    """A guest that is claimed but which the host's own figures do not count yet."""

    key: HostKey
    cpus: int
    memory_bytes: int
    storage: str = ""
    disk_bytes: int = 0
