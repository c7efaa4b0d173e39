"""
What the dashboard shows, as values: regions, hosts, guests, clusters, machines, volumes.

:mod:`.dashboard_feed` fills them from inventories and caches; :mod:`.views` turns them into
records. The views know neither Kubernetes nor Proxmox.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Literal

State = Literal[
    "ready", "creating", "moving", "attaching", "deleting", "waiting", "unknown", "trouble"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNodeView:
    """A NUMA node of a host, as its host agent published it."""

    number: int
    cpus: int
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """A Proxmox host; without a host agent its NUMA nodes are not known."""

    region: str
    name: str
    online: bool
    cpus: int
    memory_mib: int
    memory_used_mib: int = 0
    cpu_load: float = 0.0
    numa: tuple[NumaNodeView, ...] = ()
    zone: str = ""
    unreachable_since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestView:
    """A guest of Proxmox, ours or not."""

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
class RegionView:
    """A Proxmox cluster; what is shown of one that does not answer is as old as ``since``."""

    name: str
    reachable: bool = True
    read: bool = True  # False: not listed since the start
    since: datetime | None = None
    error: str = ""
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionView:
    """One condition of an object."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementView:
    """How the scheduler judged one host for a machine."""

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
class MachineView:
    """A machine of a cluster, joined from Machine, ProxmoxMachine and Node."""

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
    numa: tuple[int, ...] = ()  # the NUMA nodes of the host that its memory is bound to
    observed: bool = True  # False: its ProxmoxMachine does not exist yet
    deleting: bool = False
    outdated: bool = False
    move: str = ""  # the next move as the controller names it
    node: str = ""
    node_ready: bool | None = None  # None: unknown
    pods: int = 0
    created: datetime | None = None
    conditions: tuple[ConditionView, ...] = ()
    places: tuple[PlacementView, ...] = ()
    related: tuple[tuple[int, str, str], ...] = ()  # depth, kind, name
    template: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroupView:
    """A node group of a cluster."""

    name: str
    replicas: int
    ready: int = 0
    updated: int = 0
    cpus: int = 0
    memory_mib: int = 0
    surge: int = 1
    unavailable: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
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
    message: str = ""
    since: datetime | None = None
    created: datetime | None = None
    groups: tuple[NodeGroupView, ...] = ()
    addresses: str = ""
    address_pools: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageView:
    """A storage; ``host`` is empty if it is shared, then ``hosts`` of them have it."""

    region: str
    name: str
    host: str = ""
    type: str = ""
    content: tuple[str, ...] = ()
    hosts: int = 1
    active_hosts: int = 1
    total_mib: int = 0
    used_mib: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeView:
    """A PersistentVolume, or a PersistentVolumeClaim that has none yet."""

    name: str
    cluster: str
    claim: str
    storage: str
    size_mib: int
    guest: str = ""
    disk: str = ""
    message: str = ""
    state: State = "ready"
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNodeView:
    """A node of a node pool: why it was made, why it stays, and when it is removed."""

    name: str  # of the NodeClaim
    node: str = ""
    type: str = ""
    capacity: str = ""  # on-demand, spot or reserved
    zone: str = ""
    pods: int = 0
    why: str = ""
    stays: str = ""
    goes: tuple[str, ...] = ()  # each on its own is enough
    price: float | None = None  # known if the node may be disrupted
    message: str = ""
    state: State = "ready"
    created: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePoolView:
    """A node pool of a cluster; ``proposal`` is what the autoscaler is about to save."""

    cluster: str
    name: str
    ready: bool = True
    message: str = ""
    weight: int = 1
    limits: str = ""
    used: str = ""
    nodes: tuple[PoolNodeView, ...] = ()
    proposal: str = ""
    saves: float = 0.0


@dataclass(frozen=True, kw_only=True)
class InfrastructureOverview:
    """Everything at one moment."""

    now: datetime
    mode: str
    version: str
    program: str = "moxwell"  # how commands call it
    instance: str = ""  # the value of --name that commands need; empty: the default
    regions: tuple[RegionView, ...] = ()
    hosts: tuple[HostView, ...] = ()
    guests: tuple[GuestView, ...] = ()
    clusters: tuple[ClusterView, ...] = ()
    machines: tuple[MachineView, ...] = ()
    volumes: tuple[VolumeView, ...] = ()
    storages: tuple[StorageView, ...] = ()
    node_pools: tuple[NodePoolView, ...] = ()
    checks: tuple[tuple[str, bool], ...] = ()
    cpu_limit: float = 2.0  # allowed CPU overcommit
    tasks: Mapping[str, float] = field(default_factory=dict)  # region/vmid -> progress 0..1

    @cached_property
    def lost_regions(self) -> frozenset[str]:
        """The regions that do not answer."""
        return frozenset(r.name for r in self.regions if r.read and not r.reachable)

    @cached_property
    def lost_hosts(self) -> frozenset[tuple[str, str]]:
        """The hosts that do not answer although their region does."""
        lost = self.lost_regions
        return frozenset((h.region, h.name) for h in self.hosts if not h.online) - {
            (h.region, h.name) for h in self.hosts if h.region in lost
        }

    def is_lost(self, machine: MachineView) -> bool:
        """Whether nothing is known of a machine now: its region or its host does not answer."""
        if not machine.vmid:
            return False
        where = (machine.region, machine.host)
        return machine.region in self.lost_regions or where in self.lost_hosts
