"""
Reads what a placement by NUMA node depends on: the topology of hosts, and guests of others.

A node-settings file is preferred, then what the host agent publishes in the notes of the host, then
a guess from the sockets and cores. The configurations of guests show which CPUs and which memory
they use; guests of this management cluster are known from their ProxmoxMachines. Answers are
cached, so that a launch sends no request of its own.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import structlog

from moxwell.clock import Clock
from moxwell.errors import Retryable, Terminal
from moxwell.pve.endpoints.nodes import HostStatus
from moxwell.pve.model import ObservedGuest, ObservedHost
from moxwell.pve.regions import Region
from moxwell.scheduling.inventory_model import MIB
from moxwell.scheduling.numa.agent_topology import published_topology
from moxwell.scheduling.numa.guests import GuestCpuUse, applied_cpus, read_use
from moxwell.scheduling.numa.sources import (
    HostSettings,
    InvalidNodeSettings,
    NodeSettings,
    from_settings,
    guess,
    settings_of,
    with_reserved,
)
from moxwell.scheduling.numa.topology import HostTopology, TopologySource

log = structlog.get_logger(__name__)
KEEP_SECONDS = 600.0
GUESS_SECONDS = 60.0  # a host agent may be installed
AT_ONCE = 8  # configurations that are read at the same time


@dataclass(frozen=True, slots=True)
class ObservedNuma:
    """The topology of a host, and what guests of others use of it."""

    topology: HostTopology
    others: tuple[GuestCpuUse, ...] = ()


@dataclass(slots=True)
class _RegionNuma:
    """The cached answers of one region."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    topologies: dict[str, tuple[float, HostTopology]] = field(default_factory=dict)  # with expiry
    uses: dict[int, tuple[float, ObservedGuest, GuestCpuUse]] = field(default_factory=dict)


class HostNumaReader:
    """Topologies and guests of all hosts asked for so far."""

    def __init__(self, clock: Clock, settings: NodeSettings | None = None) -> None:
        self._clock, self._settings = clock, settings or {}
        self._known: dict[str, _RegionNuma] = {}

    def settings(self, region: str, host: str) -> HostSettings | None:
        """The settings of a host in the node-settings file."""
        return settings_of(self._settings, region, host)

    async def read(
        self, region: Region, hosts: Iterable[str], own: Collection[int]
    ) -> dict[str, ObservedNuma]:
        """The hosts of a region; ``own`` are the VMIDs whose configuration is not read."""
        known = self._known.setdefault(region.key, _RegionNuma())
        view = region.inventory.view
        async with known.lock:
            found = {}
            for host in hosts:
                topology = await self._topology(region, known, view.hosts[host])
                guests = [g for g in view.by_host.get(host, ()) if not g.template]
                others = [g for g in guests if g.vmid not in own]
                found[host] = ObservedNuma(topology, await self._uses(region, known, others))
            self._forget(known, view.guests)
        return found

    async def _topology(
        self, region: Region, known: _RegionNuma, host: ObservedHost
    ) -> HostTopology:
        expiry, topology = known.topologies.get(host.name, (0.0, None))
        if topology is not None and expiry > self._clock.monotonic():
            return topology
        settings = self.settings(region.name, host.name)
        if settings is not None and settings.nodes:
            topology = from_settings(settings)
        else:
            topology = await _published(region, host.name) or await _guessed(region, host)
            topology = with_reserved(topology, settings) if settings else topology
        keep = GUESS_SECONDS if topology.source is TopologySource.GUESS else KEEP_SECONDS
        known.topologies[host.name] = (self._clock.monotonic() + keep, topology)
        return topology

    async def _uses(
        self, region: Region, known: _RegionNuma, guests: list[ObservedGuest]
    ) -> tuple[GuestCpuUse, ...]:
        now, limit = self._clock.monotonic(), asyncio.Semaphore(AT_ONCE)

        async def use(guest: ObservedGuest) -> GuestCpuUse:
            expiry, before, found = known.uses.get(guest.vmid, (0.0, None, None))
            if found is not None and before == guest and expiry > now:
                return found
            async with limit:
                found = await _use(region, guest)
            known.uses[guest.vmid] = (now + KEEP_SECONDS, guest, found)
            return found

        return tuple(await asyncio.gather(*map(use, guests)))

    def _forget(self, known: _RegionNuma, guests: Collection[int]) -> None:
        known.uses = {vmid: entry for vmid, entry in known.uses.items() if vmid in guests}


async def _use(region: Region, guest: ObservedGuest) -> GuestCpuUse:
    """The use of a guest; a container, or a guest that cannot be read, counts as shared."""
    shared = GuestCpuUse(-(-int(guest.cpus * 1000) // 1000), guest.memory_bytes // MIB)
    if guest.kind == "lxc":
        return shared
    try:
        config = await region.reader.qemu.config(guest.host, guest.vmid)
    except (Retryable, Terminal):
        return shared
    return read_use(config.raw, applied_cpus(config.raw))


async def _published(region: Region, host: str) -> HostTopology | None:
    """What the host agent published; None if there is none that can be used."""
    try:
        return published_topology(await region.reader.nodes.notes(host))
    except InvalidNodeSettings as error:
        log.warning("topology not used", region=region.name, host=host, error=str(error))
        return None
    except (Retryable, Terminal):
        return None


async def _guessed(region: Region, host: ObservedHost) -> HostTopology:
    """A guess from the host's status; without the privilege to read it, one NUMA node."""
    try:
        status = await region.reader.nodes.status(host.name)
    except (Retryable, Terminal):
        status = HostStatus()
    cpu = status.cpuinfo
    return guess(
        sockets=cpu.sockets or 1,
        cores=cpu.cores or host.cpus,
        cpus=cpu.cpus or host.cpus,
        memory_mib=(status.memory.total or host.memory_bytes) // MIB,
        model=cpu.model,
    )
