"""
Sizes of guests that the autoscaler may launch: fixed families, a file, or fitted to a host. Pure.

Families, names, prices and the file are those of karpenter-provider-proxmox. Unlike there, memory
that the kubelet reserves grows with the size, and the family x1 of its documentation exists.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from moxwell.errors import Invalid
from moxwell.scheduling.inventory_model import GIB, MIB
from moxwell.scheduling.resource_lists import (
    CPU,
    MEMORY,
    PODS,
    ResourceList,
    offered,
    requested,
    total,
)
from moxwell.scheduling.well_known_labels import ON_DEMAND, SPOT

EPHEMERAL_STORAGE = "ephemeral-storage"
FAMILIES: tuple[tuple[str, int], ...] = (("c1", 2), ("t1", 3), ("s1", 4), ("m1", 8), ("x1", 16))
CPUS = (1, 2, 4, 8, 16)
DISK_GIB = 30
CPU_PRICE, GB_PRICE, GB = 0.025, 0.001, 10**9
SPOT_PRICE = 0.5
MEMORY_STEP_MIB = 8
_KUBE_CPU = ((2, "20m"), (4, "50m"))
_KUBE_MEMORY = ((1, "128Mi"), (2, "192Mi"), (4, "256Mi"))
_PODS = ((1, 32), (2, 64))
T = TypeVar("T")


class InvalidInstanceTypes(Invalid):
    """The instance-types file has a mistake."""

    reason = "InvalidInstanceTypes"


@dataclass(frozen=True, slots=True)
class GuestOverhead:
    """Resources of a node that pods cannot use."""

    kube: ResourceList = field(default_factory=dict, hash=False)
    system: ResourceList = field(default_factory=dict, hash=False)
    eviction: ResourceList = field(default_factory=dict, hash=False)

    @property
    def all(self) -> dict[str, int]:
        return total((self.kube, self.system, self.eviction))


@dataclass(frozen=True, slots=True)
class GuestSize:
    """A size by name; resources are in thousandths."""

    name: str
    capacity: ResourceList = field(hash=False)
    overhead: GuestOverhead = GuestOverhead()
    capacity_type: str = ON_DEMAND

    @property
    def family(self) -> str:
        return self.name.partition(".")[0]

    @property
    def cpus(self) -> int:
        """The vCPUs of the guest."""
        return -(-self.capacity.get(CPU, 0) // 1000)

    @property
    def memory_bytes(self) -> int:
        return self.capacity.get(MEMORY, 0) // 1000

    @property
    def guest_memory_mib(self) -> int:
        """The memory of the guest: a multiple of 8 MiB, as a ProxmoxMachine has it."""
        return self.memory_bytes // MIB // MEMORY_STEP_MIB * MEMORY_STEP_MIB

    @property
    def disk_bytes(self) -> int:
        return self.capacity.get(EPHEMERAL_STORAGE, 0) // 1000

    @property
    def price(self) -> float:
        """The price per hour, as the provider computes it: electricity of CPU and memory."""
        cpus = self.capacity.get(CPU, 0) / 1000
        return guest_price(cpus, self.memory_bytes, self.capacity_type)


def guest_price(cpus: float, memory_bytes: int, capacity_type: str) -> float:
    """The price per hour of CPUs and memory."""
    full = CPU_PRICE * cpus + GB_PRICE * memory_bytes / GB
    return full * SPOT_PRICE if capacity_type == SPOT else full


def family_sizes(
    families: Iterable[tuple[str, int]] = FAMILIES, cpus: Iterable[int] = CPUS
) -> tuple[GuestSize, ...]:
    """The sizes of the families."""
    kinds = tuple(families)
    return tuple(make_size(n, n * factor * GIB, family) for n in cpus for family, factor in kinds)


def make_size(cpus: int, memory_bytes: int, family: str, *, disk_gib: int = DISK_GIB) -> GuestSize:
    """A size with the usual number of pods and overhead."""
    gib = memory_bytes / GIB
    amounts: dict[str, str | int | float] = {
        CPU: cpus,
        MEMORY: memory_bytes,
        EPHEMERAL_STORAGE: f"{disk_gib}Gi",
        PODS: _tier(gib, _PODS, 110),
    }
    shown = f"{gib:g}GB" if gib >= 1 else f"{memory_bytes // MIB}MB"
    return GuestSize(f"{family}.{cpus}VCPU-{shown}", offered(amounts), _overhead(cpus, gib))


def _overhead(cpus: int, gib: float) -> GuestOverhead:
    return GuestOverhead(
        requested({CPU: _tier(cpus, _KUBE_CPU, "100m", below=True), MEMORY: _kube_memory(gib)}),
        requested({CPU: "10m", MEMORY: "64Mi"}),
        requested({MEMORY: "100Mi"}),
    )


def _kube_memory(gib: float) -> str:
    return _tier(gib, _KUBE_MEMORY, "384Mi")


def _tier(value: float, tiers: Iterable[tuple[int, T]], beyond: T, *, below: bool = False) -> T:
    """The entry of the first tier that the value is in."""
    return next(
        (e for limit, e in tiers if value < limit or (value == limit and not below)), beyond
    )


class SizeOverheadEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The overhead of a size in the file."""

    kube: Mapping[str, str | int] | None = msgspec.field(name="KubeReserved", default=None)
    system: Mapping[str, str | int] | None = msgspec.field(name="SystemReserved", default=None)
    eviction: Mapping[str, str | int] | None = msgspec.field(name="EvictionThreshold", default=None)


class SizeEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A size in the file."""

    name: Annotated[str, Meta(min_length=1, max_length=63)]
    capacity: Mapping[str, str | int]
    capacity_type: Literal["", "on-demand", "spot", "reserved"] = msgspec.field(
        name="capacitytype", default=""
    )
    overhead: SizeOverheadEntry | None = None


def read_sizes(text: str | bytes) -> tuple[GuestSize, ...]:
    """Read an instance-types file."""
    try:
        entries = msgspec.json.decode(text, type=tuple[SizeEntry, ...])
    except msgspec.DecodeError as error:
        raise InvalidInstanceTypes(f"instance types: {error}") from error
    sizes = tuple(_size(entry, number) for number, entry in enumerate(entries))
    names = [size.name for size in sizes]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise InvalidInstanceTypes(f"instance types: {repeated[0]!r} occurs twice")
    return sizes


def _size(entry: SizeEntry, number: int) -> GuestSize:
    where = f"instance types: [{number}] {entry.name!r}"
    overhead = entry.overhead or SizeOverheadEntry()
    try:
        capacity = offered(entry.capacity)
        reserved = GuestOverhead(
            requested(overhead.kube), requested(overhead.system), requested(overhead.eviction)
        )
    except Invalid as error:
        raise InvalidInstanceTypes(f"{where}: {error}") from error
    for name in (CPU, MEMORY, PODS):
        if capacity.get(name, 0) <= 0:
            raise InvalidInstanceTypes(f"{where}: set capacity.{name} above zero")
        if reserved.all.get(name, 0) >= capacity[name]:
            raise InvalidInstanceTypes(f"{where}: overhead takes all of its {name}")
    return GuestSize(entry.name, capacity, reserved, entry.capacity_type or ON_DEMAND)
