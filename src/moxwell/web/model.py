"""
What the dashboard is told, as values: hosts and guests, clusters and machines, and what happened.

``app`` fills these from inventories and caches once a second at the most; ``views`` turn them into
records. They are the border: nothing behind it knows Kubernetes or Proxmox.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

State = Literal["ready", "made", "moving", "attaching", "leaving", "waiting", "unknown", "trouble"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A Proxmox host."""

    region: str
    name: str
    online: bool
    cpus: int
    memory_mib: int
    memory_used_mib: int = 0
    cpu_load: float = 0.0
    sockets: int = 1
    zone: str = ""
    silent_since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A guest, ours or not."""

    region: str
    host: str
    vmid: int
    name: str
    running: bool
    cpus: int
    memory_mib: int
    memory_used_mib: int = 0
    cpu_load: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A Proxmox cluster."""

    name: str
    reachable: bool = True
    since: datetime | None = None
    error: str = ""
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition of an object."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One host and what was thought of it as a place for a machine."""

    region: str
    host: str
    fits: bool
    chosen: bool = False
    verdict: str = ""
    because: str = ""
    free_mib: int | None = None
    promised: int | None = None
    cores: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine of a cluster, joined from all objects that speak of it."""

    namespace: str
    name: str
    cluster: str
    group: str = ""
    region: str = ""
    host: str = ""
    vmid: int = 0
    address: str = ""
    version: str = ""
    cpus: int = 0
    memory_mib: int = 0
    deleting: bool = False
    outdated: bool = False
    move: str = ""  # the next move as the controller names it
    node: str = ""
    node_ready: bool | None = None  # None: nobody can say
    pods: int = 0
    created: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    places: tuple[Place, ...] = ()
    related: tuple[tuple[int, str, str], ...] = ()  # depth, kind, name
    template: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A node group of a cluster."""

    name: str
    want: int
    ready: int = 0
    updated: int = 0
    cpus: int = 0
    memory_mib: int = 0
    surge: int = 1
    unavailable: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A tenant cluster."""

    namespace: str
    name: str
    version: str = ""
    target: str = ""
    endpoint: str = ""
    endpoint_ok: bool = False
    control_plane: str = ""
    deleting: bool = False
    ready: bool = False
    says: str = ""
    since: datetime | None = None
    groups: tuple[Group, ...] = ()
    addresses: str = ""
    addresses_say: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """A storage that takes disks; ``host`` where it is not shared."""

    region: str
    name: str
    host: str = ""
    total_mib: int = 0
    used_mib: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A disk that a claim asked for."""

    name: str
    cluster: str
    claim: str
    storage: str
    size_mib: int
    guest: str = ""
    disk: str = ""
    says: str = ""
    state: State = "ready"
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estate:
    """Everything, at one moment."""

    now: datetime
    mode: str
    version: str
    regions: tuple[Region, ...] = ()
    hosts: tuple[Host, ...] = ()
    guests: tuple[Guest, ...] = ()
    clusters: tuple[Cluster, ...] = ()
    machines: tuple[Machine, ...] = ()
    volumes: tuple[Volume, ...] = ()
    storages: tuple[Storage, ...] = ()
    checks: tuple[tuple[str, bool], ...] = ()
    cpu_limit: float = 2.0  # how far processors may be promised, as a multiple
    tasks: Mapping[str, float] = field(default_factory=dict)  # region/vmid -> progress 0..1
