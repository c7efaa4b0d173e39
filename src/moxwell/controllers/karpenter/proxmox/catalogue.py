"""
The instance types that a node class can make now. Pure.

Sizes come from an instance-types file or from the families, and from what the hosts have free. The
node class decides the size of the disk and the number of pods.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from moxwell.api.karpenter.proxmox import ProxmoxNodeClassSpec
from moxwell.api.quantity import Quantity
from moxwell.controllers.karpenter.proxmox.host_states import HostState
from moxwell.controllers.karpenter.proxmox.node_class_check import SelectedZone
from moxwell.scheduling.guest_offerings import Blocked, fine_sizes, fitted_sizes, instance_types
from moxwell.scheduling.guest_sizes import EPHEMERAL_STORAGE, GuestSize, family_sizes
from moxwell.scheduling.host_room import HostRoom
from moxwell.scheduling.inventory_model import GIB, MIB
from moxwell.scheduling.numa.host_numa import NodePolicy
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.resource_lists import MEMORY, MILLI, PODS

LEAST_DISK_GIB = 5


@dataclass(frozen=True, slots=True)
class CatalogueSettings:
    """Which sizes are offered."""

    sizes: tuple[GuestSize, ...] = ()  # of the instance-types file; empty: the families
    fitted: bool = False  # also sizes that use up what a host has free
    fine: bool = (
        False  # also sizes in small steps, so that each node is hardly larger than its pods
    )
    # what firmware and kernel keep of a guest's memory: Karpenter's setting and default
    vm_memory_overhead_percent: float = 0.075
    node_policy: NodePolicy = NodePolicy.SIMPLE


@dataclass(frozen=True, slots=True)
class Candidate:
    """A host that a node class selects, with its room."""

    zone: SelectedZone
    state: HostState

    @property
    def room(self) -> HostRoom:
        return self.state.room


def candidates(zones: Iterable[SelectedZone], states: Iterable[HostState]) -> tuple[Candidate, ...]:
    """The selected hosts whose room is known."""
    known = {(s.room.key, s.failure_domain): s for s in states}
    return tuple(
        Candidate(zone, state)
        for zone in zones
        if (state := known.get((zone.key, zone.failure_domain))) is not None
    )


def sizes_of(
    spec: ProxmoxNodeClassSpec, settings: CatalogueSettings, hosts: Iterable[Candidate]
) -> tuple[GuestSize, ...]:
    """The sizes of a node class, with its disk and number of pods."""
    known = settings.sizes or family_sizes()
    fitted = fitted_sizes(host.room for host in hosts) if settings.fitted else ()
    fine = fine_sizes() if settings.fine else ()
    every = {size.name: size for size in (*fine, *fitted, *known)}
    order = dict.fromkeys(size.name for size in (*known, *fitted, *fine))
    return tuple(_with_class(spec, every[name]) for name in order)


def catalogue(
    sizes: Iterable[GuestSize],
    hosts: Iterable[Candidate],
    settings: CatalogueSettings,
    blocked: Blocked = (),
) -> tuple[InstanceType, ...]:
    """Instance types with an offering for each host."""
    every = tuple(sizes)
    capacities = {size.name: node_capacity(size, settings) for size in every}
    return tuple(
        replace(each, capacity=capacities[each.name])
        for each in instance_types(every, (host.room for host in hosts), blocked)
    )


def node_capacity(size: GuestSize, settings: CatalogueSettings) -> dict[str, int]:
    """What the node reports: less memory than its guest has."""
    left = 1 - settings.vm_memory_overhead_percent
    memory = int(size.memory_bytes * left) // MIB * MIB
    return dict(size.capacity) | {MEMORY: memory * MILLI}


def disk_gib(spec: ProxmoxNodeClassSpec) -> int:
    """The size of the boot disk in GiB, rounded up; a ProxmoxMachine has at least 5."""
    given = Quantity.parse(spec.boot_device.size).milli / MILLI / GIB
    return max(LEAST_DISK_GIB, math.ceil(given))


def _with_class(spec: ProxmoxNodeClassSpec, size: GuestSize) -> GuestSize:
    amounts = dict(size.capacity) | {EPHEMERAL_STORAGE: disk_gib(spec) * GIB * MILLI}
    kubelet = spec.kubelet_configuration
    if kubelet is not None and kubelet.max_pods is not None:
        amounts[PODS] = kubelet.max_pods * MILLI
    return replace(size, capacity=amounts)
