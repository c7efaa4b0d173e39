"""Builds a host's topology from what the host agent publishes in the notes of the host."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from moxwell.scheduling.numa.sources import DEFAULT_RESERVED_MIB, InvalidNodeSettings
from moxwell.scheduling.numa.topology import (
    HostCpu,
    HostNumaNode,
    HostTopology,
    TopologySource,
)

_BLOCK = re.compile(r"<!-- moxwell-agent\n(.*?)\n-->", re.DOTALL)


class AgentNode(msgspec.Struct, frozen=True, kw_only=True):
    """A NUMA node; memory in MiB, huge pages by their size in MiB."""

    number: Annotated[int, Meta(ge=0, le=1023)]
    memory: Annotated[int, Meta(ge=0)]
    pages: Mapping[str, int] = msgspec.field(default_factory=dict)


class AgentTopology(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent publishes; a CPU is number, core, cache, NUMA node and socket."""

    version: Literal[1]
    cpus: Annotated[tuple[tuple[int, int, int, int, int], ...], Meta(min_length=1)]
    nodes: Annotated[tuple[AgentNode, ...], Meta(min_length=1)]
    pci: Mapping[str, int] = msgspec.field(default_factory=dict)  # NUMA node by PCI address


def published_topology(notes: str) -> HostTopology | None:
    """The topology in the notes of a host; None if the agent published none."""
    block = _BLOCK.search(notes)
    return from_agent(block[1]) if block else None


def from_agent(published: str) -> HostTopology:
    """Build the topology from the agent's JSON."""
    try:
        found = msgspec.json.decode(published, type=AgentTopology)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidNodeSettings(f"topology of the host agent: {error}") from error
    cpus = tuple(sorted(HostCpu(*cpu) for cpu in found.cpus))
    if missing := {cpu.node for cpu in cpus} - {node.number for node in found.nodes}:
        raise InvalidNodeSettings(f"topology of the host agent: no NUMA node {min(missing)}")
    nodes = tuple(
        HostNumaNode(n.number, n.memory, {int(s): c for s, c in n.pages.items() if s.isdecimal()})
        for n in found.nodes
    )
    return HostTopology(
        cpus, nodes, frozenset(), DEFAULT_RESERVED_MIB, TopologySource.AGENT, found.pci
    )
