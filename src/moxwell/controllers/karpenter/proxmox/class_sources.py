"""What the reader of node classes reads: caches, zones, capabilities of hosts, reservations."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.zone_settings import ZoneSettings
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate, ProxmoxUnmanagedTemplate
from moxwell.controllers.karpenter.proxmox.host_numa_reader import HostNumaReader
from moxwell.controllers.karpenter.proxmox.launches import LaunchedCapacity
from moxwell.controllers.karpenter.proxmox.node_class_check import InstanceTemplate
from moxwell.controllers.karpenter.proxmox.pci_locality import PassedDeviceReader
from moxwell.controllers.karpenter.proxmox.scope import MachineDefaults
from moxwell.pve.regions import Region
from moxwell.pve.reservations import Reservations
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.scheduling.numa.devices import Addresses

Zones = Mapping[str, tuple[Region, ZoneSettings]]


class ZoneSource(Protocol):
    """Finds the regions and zones that a cluster may use."""

    def zones(self, cluster: ProxmoxCluster) -> tuple[Zones, str]:
        """The zones that can be reached, and a message about the others."""


class CapabilitySource(Protocol):
    """Reads the security groups of a region and the architectures of its hosts."""

    async def firewall_groups(
        self, region: Region, wanted: frozenset[str]
    ) -> frozenset[str] | None:
        """The names of the groups; None if they are unknown."""

    async def architectures(self, region: Region, hosts: Iterable[str]) -> dict[str, str]:
        """The architecture of each host; empty if it is unknown."""

    async def mapped_devices(self, region: Region) -> Mapping[str, Addresses] | None:
        """The PCI addresses of each mapping on each host; None if they are unknown."""

    async def in_maintenance(self, region: Region) -> frozenset[str]:
        """The hosts in maintenance mode; empty if they are unknown."""


@dataclass(frozen=True, slots=True)
class ManagementCaches:
    """Objects of the management cluster."""

    machines: Cache[Machine]
    clusters: Cache[Cluster]
    proxmox_clusters: Cache[ProxmoxCluster]
    proxmox_machines: Cache[ProxmoxMachine]


@dataclass(frozen=True, slots=True)
class TemplateCaches:
    """Templates that the scaled cluster declares."""

    managed: Cache[ProxmoxTemplate]
    unmanaged: Cache[ProxmoxUnmanagedTemplate]
    built_tags: Callable[[ProxmoxTemplate], tuple[str, ...]]  # of the copies made of a template

    def find(self, node_class: ProxmoxNodeClass) -> InstanceTemplate | None:
        ref = node_class.spec.instance_template_ref
        key = Key("", ref.name)
        if ref.kind == "ProxmoxTemplate":
            return self.managed.find(key)
        return self.unmanaged.find(key)

    def tags_of(self, template: InstanceTemplate | None) -> tuple[str, ...]:
        """The tags of the copies that Moxwell made of a template, and of its present revision."""
        return self.built_tags(template) if isinstance(template, ProxmoxTemplate) else ()


@dataclass(frozen=True, slots=True)
class ClassSources:
    """All inputs of the reader."""

    management: ManagementCaches
    templates: TemplateCaches
    zones: ZoneSource
    capabilities: CapabilitySource
    reservations: Reservations
    launched: LaunchedCapacity
    numa: HostNumaReader
    devices: PassedDeviceReader
    defaults: Callable[[], MachineDefaults]
