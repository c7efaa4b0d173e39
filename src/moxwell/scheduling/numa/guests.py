"""Reads from a guest's configuration which CPUs and which memory of its host it uses."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from moxwell.errors import Invalid
from moxwell.scheduling.numa.cores import whole_cores
from moxwell.scheduling.numa.cpusets import parse_cpus
from moxwell.scheduling.numa.topology import HostTopology

MAX_NUMA = 8
OWNED = "moxwell"  # the tag of guests that the host agent changes
_LINE = re.compile(r"^moxwell-cpus: ([0-9,-]+)(?: emulator=[0-9,-]+)?\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class GuestCpuUse:
    """A guest's CPUs if it is pinned, and its memory and vCPUs by NUMA node if it is bound."""

    vcpus: int
    memory_mib: int
    pinned: frozenset[int] = frozenset()
    bound: Mapping[int, int] = field(default_factory=dict, hash=False)
    huge_page_mib: int = 0
    bound_vcpus: Mapping[int, int] = field(default_factory=dict, hash=False)


def read_use(config: Mapping[str, str], affinity: str = "") -> GuestCpuUse:
    """
    Read a configuration; ``affinity`` is the mask that the host agent applies, if it does.

    What cannot be read counts as a shared guest: it uses its memory anywhere.
    """
    vcpus = _number(config.get("cores"), 1) * _number(config.get("sockets"), 1)
    memory = _number(config.get("memory", "").removeprefix("current="), 512)
    pages = config.get("hugepages", "")
    bound: dict[int, int] = {}
    bound_vcpus: dict[int, int] = {}
    if config.get("numa") in ("1", "on", "yes", "true"):
        for number in range(MAX_NUMA):
            _add_bound(bound, bound_vcpus, config.get(f"numa{number}", ""))
    return GuestCpuUse(
        vcpus,
        memory,
        _cpus(affinity or config.get("affinity", "")),
        bound,
        _number(pages, 0),
        bound_vcpus,
    )


def applied_cpus(config: Mapping[str, str]) -> str:
    """The CPUs that the host agent applies: those of the line in the description of our guests."""
    found = _LINE.search(config.get("description", ""))
    tags = re.split("[;, ]+", config.get("tags", ""))
    return found[1] if found and OWNED in tags else ""


def _add_bound(bound: dict[int, int], vcpus: dict[int, int], text: str) -> None:
    """Add the memory and vCPUs of one numaN option that is bound to host nodes."""
    options = dict(part.partition("=")[::2] for part in text.split(","))
    hosts = sorted(_cpus(options.get("hostnodes", "").replace(";", ",")))
    if not hosts or options.get("policy") != "bind":
        return
    count = len(_cpus(options.get("cpus", "").replace(";", ",")))
    for host in hosts:
        vcpus[host] = vcpus.get(host, 0) + -(-count // len(hosts))
        bound[host] = bound.get(host, 0) + -(-_number(options.get("memory"), 0) // len(hosts))


def free_memory(topology: HostTopology, guests: Iterable[GuestCpuUse]) -> dict[int, int]:
    """The free MiB of each NUMA node; memory that is bound nowhere is spread over all nodes."""
    free = {node.number: topology.memory_mib(node.number) for node in topology.nodes}
    total = sum(node.memory_mib for node in topology.nodes) or 1
    for guest in guests:
        for number, memory in guest.bound.items():
            if number in free:
                free[number] -= memory
        rest = max(guest.memory_mib - sum(guest.bound.values()), 0)
        for node in topology.nodes:
            free[node.number] -= -(-rest * node.memory_mib // total)
    return free


def free_pages(topology: HostTopology, guests: Iterable[GuestCpuUse], size: int) -> dict[int, int]:
    """The free MiB in huge pages of a size by NUMA node; only nodes whose pages are known."""
    free = {n.number: n.huge_pages.get(size, 0) * size for n in topology.nodes if n.huge_pages}
    for guest in guests:
        for number, memory in guest.bound.items() if guest.huge_page_mib == size else ():
            if number in free:
                free[number] -= memory
    return free


def pinned_cpus(guests: Iterable[GuestCpuUse]) -> frozenset[int]:
    """All CPUs that belong to pinned guests."""
    return frozenset(cpu for guest in guests for cpu in guest.pinned)


def shared_cpus(topology: HostTopology, guests: Iterable[GuestCpuUse]) -> frozenset[int]:
    """The CPUs for shared guests, emulator and I/O threads: no core of a pinned guest."""
    pinned = whole_cores(topology, pinned_cpus(guests))
    return topology.numbers - topology.reserved_cpus - pinned


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() else default


def _cpus(text: str) -> frozenset[int]:
    try:
        return frozenset(parse_cpus(text))
    except Invalid:
        return frozenset()
