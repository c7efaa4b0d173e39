"""
The NUMA nodes of hosts, from what their host agents publish in the notes of the hosts.

Notes are read every ten minutes. Without a host agent the NUMA nodes of a host are not
known, and none are guessed.
"""

import structlog

from moxwell.clock import Clock
from moxwell.errors import Retryable, Terminal
from moxwell.pve.regions import Region, Regions
from moxwell.scheduling.numa.agent_topology import published_topology
from moxwell.scheduling.numa.sources import InvalidNodeSettings
from moxwell.scheduling.numa.topology import HostTopology
from moxwell.web.model import NumaNodeView

KEEP_SECONDS = 600.0
log = structlog.get_logger(__name__)
HostKey = tuple[str, str]


class HostTopologies:
    """The published topologies of all hosts, read while they are online."""

    def __init__(self, regions: Regions, clock: Clock) -> None:
        self._regions, self._clock = regions, clock
        self._known: dict[HostKey, tuple[float, tuple[NumaNodeView, ...]]] = {}

    def numa_of(self, region: str, host: str) -> tuple[NumaNodeView, ...]:
        """The NUMA nodes of a host; empty if they are not known."""
        return self._known.get((region, host), (0.0, ()))[1]

    async def read(self) -> None:
        """Read the notes of hosts whose last answer is too old."""
        now = self._clock.monotonic()
        for region in self._regions.all():
            if not region.inventory.health.reachable:
                continue
            for host in region.inventory.hosts.values():
                key = (region.name, host.name)
                if host.online and self._known.get(key, (0.0, ()))[0] <= now:
                    found = await self._read(region, host.name)
                    self._known[key] = (now + KEEP_SECONDS, found)

    async def _read(self, region: Region, host: str) -> tuple[NumaNodeView, ...]:
        try:
            topology = published_topology(await region.reader.nodes.notes(host))
        except InvalidNodeSettings as error:
            log.warning("topology not shown", region=region.name, host=host, error=str(error))
            return ()
        except (Retryable, Terminal):
            return self.numa_of(region.name, host)
        return nodes_of(topology) if topology is not None else ()


def nodes_of(topology: HostTopology) -> tuple[NumaNodeView, ...]:
    """The NUMA nodes of a topology, by number."""
    return tuple(
        NumaNodeView(
            number=node.number,
            cpus=sum(cpu.node == node.number for cpu in topology.cpus),
            memory_mib=node.memory_mib,
        )
        for node in sorted(topology.nodes, key=lambda n: n.number)
    )
