"""Chooses physical cores for pinned vCPUs: close together, siblings side by side."""

from collections.abc import Collection, Iterable
from itertools import groupby

from moxwell.scheduling.numa.topology import HostCpu, HostTopology, cores_of

Cores = list[tuple[HostCpu, ...]]


def free_cores(cpus: Iterable[HostCpu], taken: Collection[int]) -> Cores:
    """Physical cores of which no logical CPU is taken."""
    grouped = cores_of(cpus).values()
    return [core for core in grouped if not any(cpu.number in taken for cpu in core)]


def choose_cpus(cores: Cores, count: int) -> tuple[int, ...] | None:
    """
    Choose CPUs for ``count`` vCPUs, in the order of the vCPUs.

    Whole cores are used, so that no other guest runs on a sibling; the L3 cache with the smallest
    sufficient rest comes first, then whole caches.
    """
    chosen: list[int] = []
    rest = count
    for core in _by_cache(cores, count):
        if rest <= 0:
            break
        taken = [cpu.number for cpu in core][:rest]
        chosen += taken
        rest -= len(taken)
    return tuple(chosen) if rest <= 0 else None


def whole_cores(topology: HostTopology, cpus: Collection[int]) -> frozenset[int]:
    """The CPUs with all siblings of their cores."""
    cores = {cpu.core for cpu in topology.cpus if cpu.number in cpus}
    return frozenset(cpu.number for cpu in topology.cpus if cpu.core in cores)


def _by_cache(cores: Cores, count: int) -> Cores:
    ordered = sorted(cores, key=lambda core: (core[0].cache, core[0].number))
    groups = [list(found) for _, found in groupby(ordered, key=lambda core: core[0].cache)]
    sizes = [sum(map(len, group)) for group in groups]
    fitting = [i for i, size in enumerate(sizes) if size >= count]
    if fitting:
        return groups[min(fitting, key=lambda i: (sizes[i], i))]
    largest = sorted(range(len(groups)), key=lambda i: (-sizes[i], i))
    return [core for index in largest for core in groups[index]]
