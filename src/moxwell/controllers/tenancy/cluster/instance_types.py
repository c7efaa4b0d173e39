"""Instance types such as ``u1.medium``: the series gives GiB per core, the size the cores. Pure."""

import difflib
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
MIN_MEMORY_MIB = 512


@dataclass(frozen=True, slots=True)
class NodeSize:
    """Cores, memory and disk of each node of a group."""

    cores: int
    memory_mib: int
    disk_gib: int


class UnknownInstanceType(Invalid):
    """An instance type that does not exist."""

    reason = "InstanceTypeUnknown"


def size_of(group: NodeGroup) -> NodeSize:
    """The size of a group's nodes: explicit resources override the instance type."""
    cores, memory = _by_type(group.instance_type or DEFAULT_TYPE)
    if group.resources.cpu is not None:
        cores = max(1, round(quantity.cores(group.resources.cpu) + 0.4999))
    if group.resources.memory is not None:
        memory = quantity.mebibytes(group.resources.memory)
    disk = DEFAULT_DISK_GIB
    if group.disk_size is not None:
        disk = max(1, -(-quantity.mebibytes(group.disk_size) // 1024))
    return NodeSize(cores, max(MIN_MEMORY_MIB, memory + -memory % 8), disk)


def every() -> dict[str, NodeSize]:
    """All instance types with the size of their nodes."""
    names = (f"{series}.{size}" for series in SERIES for size in SIZES)
    return {name: size_of(NodeGroup(instance_type=name)) for name in names}


def _by_type(name: str) -> tuple[int, int]:
    series, _, size = name.partition(".")
    if series not in SERIES or size not in SIZES:
        known = f"a series ({', '.join(SERIES)}) and a size ({', '.join(SIZES)})"
        raise UnknownInstanceType(
            f"instance type {name!r} does not exist{_nearest(name)}: use {known}, as in u1.medium"
        )
    cores = SIZES[size]
    return max(1, round(cores + 0.4999)), int(cores * SERIES[series] * 1024)


def _nearest(name: str) -> str:
    """A hint with the instance type that was probably meant; empty if none is near."""
    found = difflib.get_close_matches(name.lower(), every(), n=1, cutoff=0.75)
    return f" (did you mean {found[0]}?)" if found else ""
