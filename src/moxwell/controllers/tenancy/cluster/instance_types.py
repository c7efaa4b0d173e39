"""Instance types by name: a series gives the memory for each core, a size the cores."""

from dataclasses import dataclass

from moxwell.api import quantity
from moxwell.api.cozystack import NodeGroup
from moxwell.errors import Invalid

SERIES = {"t1": 0.5, "c1": 1.0, "s1": 2.0, "u1": 4.0, "m1": 8.0}  # GiB for each core
SIZES = {
    "nano": 0.25,
    "micro": 0.5,
    "small": 1.0,
    "medium": 2.0,
    "large": 4.0,
    "xlarge": 8.0,
    "2xlarge": 16.0,
    "4xlarge": 32.0,
}
DEFAULT_TYPE = "u1.medium"
DEFAULT_DISK_GIB = 20
LEAST_MEMORY_MIB = 512


@dataclass(frozen=True, slots=True)
class Size:
    """What each node of a group has."""

    cores: int
    memory_mib: int
    disk_gib: int


class UnknownSize(Invalid):
    """An instance type nobody knows."""

    reason = "InstanceTypeUnknown"


def size_of(group: NodeGroup) -> Size:
    """The size of a group's nodes: its resources where given, its instance type otherwise."""
    cores, memory = _by_type(group.instance_type or DEFAULT_TYPE)
    if group.resources.cpu is not None:
        cores = max(1, round(quantity.cores(group.resources.cpu) + 0.4999))
    if group.resources.memory is not None:
        memory = quantity.mebibytes(group.resources.memory)
    disk = DEFAULT_DISK_GIB
    if group.disk_size is not None:
        disk = max(1, -(-quantity.mebibytes(group.disk_size) // 1024))
    return Size(cores, max(LEAST_MEMORY_MIB, memory + -memory % 8), disk)


def _by_type(name: str) -> tuple[int, int]:
    series, _, size = name.partition(".")
    if series not in SERIES or size not in SIZES:
        known = f"{', '.join(SERIES)} with {', '.join(SIZES)}"
        raise UnknownSize(f"instance type {name!r} is not known: combine {known}, as in u1.medium")
    cores = SIZES[size]
    return max(1, round(cores + 0.4999)), int(cores * SERIES[series] * 1024)
