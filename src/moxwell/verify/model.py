"""
What the checks compare, as values: objects, Proxmox regions and tenant clusters at one moment.

A part that could not be read has an ``error`` instead of contents; checks skip it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.core.storage import PersistentVolume
from moxwell.api.cozystack import Kubernetes, Tenant
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import IPAddress, IPAddressClaim, PoolSpec
from moxwell.pve.endpoints.ha import HaResource, HaRule
from moxwell.pve.endpoints.nodes import HostInterface
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import ObservedGuest, ObservedHost
from moxwell.runtime.key import Key


class Validity(NamedTuple):
    """From when until when a certificate is valid."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class StoredVolume:
    """A volume on a storage; ``host`` is where it was listed."""

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
class ObservedRegion:
    """A region as Proxmox reports it."""

    name: str
    error: str = ""
    hosts: Mapping[str, ObservedHost] = field(default_factory=dict)
    guests: Mapping[int, ObservedGuest] = field(default_factory=dict)
    configs: Mapping[int, GuestConfig] = field(default_factory=dict)  # of guests with our mark
    applied_groups: Mapping[int, frozenset[str]] = field(default_factory=dict)  # by VMID
    security_groups: Mapping[str, str] = field(default_factory=dict)  # name -> comment
    ha: tuple[HaResource, ...] = ()
    rules: tuple[HaRule, ...] = ()
    images: tuple[StoredVolume, ...] = ()
    isos: tuple[StoredVolume, ...] = ()
    unlisted: tuple[str, ...] = ()  # storages that could not be listed
    denied: Mapping[str, str] = field(default_factory=dict)  # what the credentials may not read
    clocks: Mapping[str, float] = field(default_factory=dict)  # seconds ahead of our clock, by host
    certificates: Mapping[str, Validity] = field(default_factory=dict)  # by host
    interfaces: Mapping[str, tuple[HostInterface, ...]] = field(default_factory=dict)  # by host
    storage_servers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # addresses

    @property
    def answers(self) -> bool:
        return not self.error


@dataclass(frozen=True, slots=True)
class ObservedTenantNode:
    """A Kubernetes Node of a tenant."""

    name: str
    provider_id: str = ""
    ready: bool = True


@dataclass(frozen=True, slots=True)
class ObservedTenant:
    """The nodes, volumes and certificates of a tenant cluster."""

    error: str = ""
    nodes: tuple[ObservedTenantNode, ...] = ()
    volumes: tuple[PersistentVolume, ...] = ()
    certificates: Mapping[str, Validity] = field(default_factory=dict)  # by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything that was read at one moment."""

    now: datetime
    regions: Mapping[str, ObservedRegion] = field(default_factory=dict)
    tenant_clusters: Mapping[Key, ObservedTenant] = field(default_factory=dict)
    apps: tuple[Kubernetes, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    clusters: tuple[Cluster, ...] = ()
    proxmox_clusters: tuple[ProxmoxCluster, ...] = ()
    groups: tuple[MachineDeployment, ...] = ()
    capi_machines: tuple[Machine, ...] = ()
    machines: tuple[ProxmoxMachine, ...] = ()
    claims: tuple[IPAddressClaim, ...] = ()
    addresses: tuple[IPAddress, ...] = ()
    pools: Mapping[tuple[str, str, str], PoolSpec] = field(default_factory=dict)

    def zone_settings_of(self, machine: ProxmoxMachine) -> ProxmoxCluster | None:
        """The ProxmoxCluster of a machine."""
        name = cluster_of(machine)
        cluster = next(
            (c for c in self.clusters if (c.namespace, c.name) == (machine.namespace, name)), None
        )
        ref = cluster.spec.infrastructure_ref if cluster else None
        wanted = ref.name if ref else name
        return next(
            (
                g
                for g in self.proxmox_clusters
                if (g.namespace, g.name) == (machine.namespace, wanted)
            ),
            None,
        )


def cluster_of(machine: ProxmoxMachine) -> str:
    """The name of its Cluster."""
    return machine.metadata.labels.get("cluster.x-k8s.io/cluster-name", "")


def describe(machine: ProxmoxMachine) -> str:
    """A machine as messages name it."""
    return f"machine {machine.namespace}/{machine.name}"


def is_provisioned(machine: ProxmoxMachine) -> bool:
    """Whether a machine is provisioned and not being deleted, so that its guest must match."""
    return bool(machine.spec.provider_id) and not machine.deleting
