"""
Both sides at one moment: what the objects say, and what Proxmox and the tenants have. Values only.

Checks are functions of a :class:`World`. A part that could not be read carries ``error`` instead of
its contents, and nobody concludes anything from what is not there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.core.storage import PersistentVolume
from moxwell.api.cozystack import Kubernetes, Tenant
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import IPAddress, IPAddressClaim, PoolSpec
from moxwell.pve.endpoints.ha import HaResource, HaRule
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import GuestSeen, HostSeen
from moxwell.runtime.key import Key


@dataclass(frozen=True, slots=True)
class Stored:
    """A volume on a storage; ``host`` is where it was seen."""

    host: str
    storage: str
    volid: str
    vmid: int = 0
    shared: bool = False
    size_bytes: int = 0

    @property
    def name(self) -> str:
        """Without the storage."""
        return self.volid.partition(":")[2]


@dataclass(frozen=True, slots=True)
class RegionWorld:
    """A region as Proxmox tells it."""

    name: str
    error: str = ""
    hosts: Mapping[str, HostSeen] = field(default_factory=dict)
    guests: Mapping[int, GuestSeen] = field(default_factory=dict)
    configs: Mapping[int, GuestConfig] = field(default_factory=dict)  # of guests that are ours
    walls: Mapping[int, frozenset[str]] = field(default_factory=dict)  # security groups, by guest
    security_groups: Mapping[str, str] = field(default_factory=dict)  # and their comments
    ha: tuple[HaResource, ...] = ()
    rules: tuple[HaRule, ...] = ()
    images: tuple[Stored, ...] = ()
    isos: tuple[Stored, ...] = ()
    unlisted: tuple[str, ...] = ()  # storages that could not be listed
    denied: Mapping[str, str] = field(default_factory=dict)  # what these credentials may not read
    clocks: Mapping[str, float] = field(default_factory=dict)  # seconds ahead of ours, by host
    certificates: Mapping[str, datetime] = field(default_factory=dict)  # until when, by host

    @property
    def answers(self) -> bool:
        return not self.error


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A Kubernetes Node of a tenant."""

    name: str
    provider_id: str = ""
    ready: bool = True


@dataclass(frozen=True, slots=True)
class InsideWorld:
    """A tenant cluster from the inside."""

    error: str = ""
    nodes: tuple[NodeSeen, ...] = ()
    volumes: tuple[PersistentVolume, ...] = ()
    certificates: Mapping[str, datetime] = field(default_factory=dict)  # until when, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything that was looked at."""

    now: datetime
    regions: Mapping[str, RegionWorld] = field(default_factory=dict)
    inside: Mapping[Key, InsideWorld] = field(default_factory=dict)
    apps: tuple[Kubernetes, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    clusters: tuple[Cluster, ...] = ()
    grounds: tuple[ProxmoxCluster, ...] = ()
    groups: tuple[MachineDeployment, ...] = ()
    owners: tuple[Machine, ...] = ()
    machines: tuple[ProxmoxMachine, ...] = ()
    claims: tuple[IPAddressClaim, ...] = ()
    addresses: tuple[IPAddress, ...] = ()
    pools: Mapping[tuple[str, str, str], PoolSpec] = field(default_factory=dict)

    def ground_of(self, machine: ProxmoxMachine) -> ProxmoxCluster | None:
        """The ProxmoxCluster a machine stands on."""
        name = cluster_of(machine)
        cluster = next(
            (c for c in self.clusters if (c.namespace, c.name) == (machine.namespace, name)), None
        )
        ref = cluster.spec.infrastructure_ref if cluster else None
        wanted = ref.name if ref else name
        return next(
            (g for g in self.grounds if (g.namespace, g.name) == (machine.namespace, wanted)), None
        )


def cluster_of(machine: ProxmoxMachine) -> str:
    """The name of its Cluster."""
    return machine.metadata.labels.get("cluster.x-k8s.io/cluster-name", "")


def named(machine: ProxmoxMachine) -> str:
    """A machine as sentences call it."""
    return f"machine {machine.namespace}/{machine.name}"


def is_settled(machine: ProxmoxMachine) -> bool:
    """It has been made and is not on its way out: what it says can be held against Proxmox."""
    return bool(machine.spec.provider_id) and not machine.deleting
