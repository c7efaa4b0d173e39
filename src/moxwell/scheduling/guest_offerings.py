"""
Instance types with offerings on hosts, from guest sizes and what the hosts have free. Pure.

An offering is a size on one host: its zone is the host, unless the region groups hosts to zones. It
is available while the host has room for the size. ``fitted_sizes`` adds sizes that use up what a
host has free, which fixed families cannot; ``fine_sizes`` lets each node be hardly larger than its
pods.
"""

from collections.abc import Collection, Iterable, Mapping

from moxwell.scheduling.guest_sizes import GuestSize, family_sizes, make_size
from moxwell.scheduling.host_room import HostRoom
from moxwell.scheduling.inventory_model import GIB, HostKey
from moxwell.scheduling.packing.instance_types import InstanceType, Offering
from moxwell.scheduling.requirements import LabelRequirement, RequirementOperator, requirement
from moxwell.scheduling.well_known_labels import (
    ARCH,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    KARPENTER_LABELS,
    OS,
    REGION,
    ZONE,
    LabelRules,
)

PROVIDER = "karpenter.proxmox.sinextra.dev"
FAMILY = f"{PROVIDER}/instance-family"
CPU_TYPE = f"{PROVIDER}/instance-cpu-type"
IMAGE_ID = f"{PROVIDER}/instance-image-id"
LABELS = LabelRules(KARPENTER_LABELS | {FAMILY, CPU_TYPE, IMAGE_ID})
FITTED = "f1"
_FINE_CPUS, _FINE_GIB_PER_CPU = range(1, 33), (1, 2, 3, 4, 6, 8)
Blocked = Collection[tuple[str, HostKey]]


def instance_types(
    sizes: Iterable[GuestSize], rooms: Iterable[HostRoom], blocked: Blocked = ()
) -> tuple[InstanceType, ...]:
    """Build instance types; ``blocked`` are sizes that failed on a host a short time ago."""
    hosts = tuple(sorted(rooms, key=lambda room: room.key))
    return tuple(_instance_type(size, hosts, blocked) for size in sizes)


def _instance_type(size: GuestSize, hosts: tuple[HostRoom, ...], blocked: Blocked) -> InstanceType:
    mixed = len({room.arch for room in hosts}) > 1
    offerings = tuple(
        Offering(
            (
                *(((ARCH, room.arch),) if mixed else ()),
                (CAPACITY_TYPE, size.capacity_type),
                (INSTANCE_TYPE, size.name),
                (REGION, room.key.region),
                (ZONE, room.zone_name),
                (FAMILY, size.family),
            ),
            size.price,
            room.fits(size) and (size.name, room.key) not in blocked,
            room=room,
        )
        for room in hosts
    )
    return InstanceType(
        size.name,
        size.capacity,
        size.overhead.all,
        _requirements(size, hosts),
        offerings,
        guest=size,
    )


def _requirements(size: GuestSize, hosts: tuple[HostRoom, ...]) -> tuple[LabelRequirement, ...]:
    """What a node of this type may be labelled with; zones are named, so that pods spread."""
    values: Mapping[str, Iterable[str]] = {
        INSTANCE_TYPE: (size.name,),
        ARCH: {room.arch for room in hosts} or {"amd64"},
        OS: ("linux",),
        REGION: {room.key.region for room in hosts},
        ZONE: {room.zone_name for room in hosts},
        CAPACITY_TYPE: (size.capacity_type,),
        FAMILY: (size.family,),
    }
    present = (
        requirement(key, RequirementOperator.IN, tuple(sorted(found)))
        for key, found in values.items()
    )
    absent = (requirement(key, RequirementOperator.DOES_NOT_EXIST) for key in (CPU_TYPE, IMAGE_ID))
    return (*present, *absent)


def fitted_sizes(rooms: Iterable[HostRoom], *, largest_cpus: int = 64) -> tuple[GuestSize, ...]:
    """
    Sizes that use what a host has free: all of it, a half and a quarter.

    Memory is rounded down to GiB, so that hosts that are almost equal share a size.
    """
    found: dict[str, GuestSize] = {}
    for room in rooms:
        for part in (1, 2, 4):
            cpus = min(room.cpus, largest_cpus) // part
            memory = room.memory_bytes // part // GIB * GIB
            if room.online and cpus >= 1 and memory >= GIB:
                size = make_size(cpus, memory, FITTED)
                found[size.name] = size
    return tuple(sorted(found.values(), key=lambda size: (size.price, size.name)))


def fine_sizes() -> tuple[GuestSize, ...]:
    """
    Every number of CPUs up to 32, each with 1, 2, 3, 4, 6 and 8 GiB per CPU.

    They do not depend on what is free, so that a node's size stays known while hosts fill up.
    """
    families = [(FITTED, factor) for factor in _FINE_GIB_PER_CPU]
    return family_sizes(families, _FINE_CPUS)
