"""Reads host topology from a node-settings file, or estimates it from the Proxmox API."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import msgspec
from msgspec import Meta

from moxwell.errors import Invalid
from moxwell.scheduling.numa.cpusets import InvalidCpuList, parse_cpus
from moxwell.scheduling.numa.topology import (
    HostCpu,
    HostNumaNode,
    HostTopology,
    TopologySource,
)

MIB = 1024 * 1024
DEFAULT_RESERVED_MIB = 1024
Positive = Annotated[int, Meta(ge=1)]


class InvalidNodeSettings(Invalid):
    """The node-settings file has a mistake."""

    reason = "InvalidNodeSettings"


class NumaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A NUMA node in the file; ``memsize`` and ``memory`` both mean bytes."""

    cpus: str
    memsize: Annotated[int, Meta(ge=0)] = 0
    memory: Annotated[int, Meta(ge=0)] = 0


class HostSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host in the file, as karpenter-provider-proxmox reads it."""

    cores: Positive | None = None
    sockets: Positive = 1
    threads: Positive = 1
    uncorecaches: Positive = 1
    nodes: Mapping[str, NumaSettings] = msgspec.field(default_factory=dict)
    reservedcpus: tuple[int, ...] = ()
    reservedmemory: Annotated[int, Meta(ge=0)] = DEFAULT_RESERVED_MIB * MIB
    # not in the provider's format: how often CPUs and memory may be given to guests
    cpuovercommit: Annotated[float, Meta(gt=0, le=100)] | None = None
    memoryovercommit: Annotated[float, Meta(gt=0, le=100)] | None = None


NodeSettings = Mapping[str, Mapping[str, HostSettings]]


def read_settings(text: str | bytes) -> NodeSettings:
    """Read a node-settings file: region, then host or ``*``."""
    try:
        found = msgspec.json.decode(text, type=dict[str, dict[str, HostSettings]])
    except msgspec.DecodeError as error:
        raise InvalidNodeSettings(f"node settings: {error}") from error
    for region, hosts in found.items():
        for host, settings in hosts.items():
            _check(settings, f"{region}.{host}")
    return found


def settings_of(settings: NodeSettings, region: str, host: str) -> HostSettings | None:
    """The settings of a host, or those of all hosts of its region."""
    hosts = settings.get(region, {})
    return hosts.get(host) or hosts.get("*")


def from_settings(settings: HostSettings) -> HostTopology:
    """Build the topology that a file describes."""
    numbers = {int(name): parse_cpus(node.cpus) for name, node in settings.nodes.items()}
    total = sum(map(len, numbers.values()))
    cores = total // settings.threads or 1
    caches = max(cores // (settings.uncorecaches * settings.sockets), 1)
    cpus = []
    for node, members in sorted(numbers.items()):
        for cpu in members:
            core = cpu % cores
            socket = core // max(cores // settings.sockets, 1)
            cpus.append(HostCpu(cpu, core, core // caches, node, socket))
    nodes = tuple(
        HostNumaNode(int(name), (each.memsize or each.memory) // MIB)
        for name, each in sorted(settings.nodes.items(), key=lambda item: int(item[0]))
    )
    reserved = settings.reservedmemory // MIB
    return HostTopology(
        tuple(sorted(cpus)), nodes, frozenset(settings.reservedcpus), reserved, TopologySource.FILE
    )


def with_reserved(topology: HostTopology, settings: HostSettings) -> HostTopology:
    """A topology with the reserved CPUs and memory of a file that describes no NUMA nodes."""
    reserved = frozenset(settings.reservedcpus) & topology.numbers
    memory = settings.reservedmemory // MIB
    return replace(topology, reserved_cpus=reserved, reserved_memory_mib=memory)


def guess(*, sockets: int, cores: int, cpus: int, memory_mib: int, model: str = "") -> HostTopology:
    """
    Guess the topology of a host: one NUMA node per socket, siblings as Linux numbers them.

    The BIOS setting that divides a socket in several NUMA nodes cannot be seen, so it is not
    guessed: the host agent or a file gives it.
    """
    threads = max(cpus // max(cores, 1), 1)
    per_socket = max(cores // max(sockets, 1), 1)
    per_cache = min(_cores_per_cache(model), per_socket)
    made = []
    for number in range(cores * threads):
        core = number % cores
        socket = min(core // per_socket, sockets - 1)
        made.append(HostCpu(number, core, core // per_cache, socket, socket))
    share = memory_mib // max(sockets, 1)
    nodes = tuple(HostNumaNode(n, share) for n in range(sockets))
    return HostTopology(tuple(made), nodes, frozenset(), DEFAULT_RESERVED_MIB, TopologySource.GUESS)


def _cores_per_cache(model: str) -> int:
    """Cores that share an L3 cache: AMD EPYC has groups of four or eight, others one per socket."""
    found = re.search(r"EPYC (\d)\w{2}(\d)", model)
    if not found:
        return 2**16
    return 4 if found[1] == "7" and found[2] in "12" else 8


def _check(settings: HostSettings, where: str) -> None:
    seen: set[int] = set()
    for name, node in settings.nodes.items():
        if not name.isdecimal():
            raise InvalidNodeSettings(f"{where}.nodes: {name!r} is not the number of a NUMA node")
        try:
            members = parse_cpus(node.cpus)
        except InvalidCpuList as error:
            raise InvalidNodeSettings(f"{where}.nodes.{name}.cpus: {error}") from error
        if twice := seen & set(members):
            raise InvalidNodeSettings(f"{where}.nodes.{name}.cpus: {min(twice)} is in two nodes")
        if not node.memsize and not node.memory:
            raise InvalidNodeSettings(f"{where}.nodes.{name}: set memsize to the node's bytes")
        seen |= set(members)
    unknown = set(settings.reservedcpus) - seen
    if settings.nodes and unknown:
        raise InvalidNodeSettings(f"{where}.reservedcpus: the host has no CPU {min(unknown)}")
