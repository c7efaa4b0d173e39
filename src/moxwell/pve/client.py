"""
The client of one region: every endpoint that Moxwell uses, one request each, grouped by area.

In: a wire (:mod:`moxwell.pve.transport`). Out: typed answers and task ids. Nothing here waits,
retries or chooses; that is done by the tasks poller, the runtime and the controllers.
The surprise: a ``Pve`` is bound to its region for good. There is no default region anywhere.
"""

from moxwell.pve.caller import Calls
from moxwell.pve.endpoints.access import Access, Pools
from moxwell.pve.endpoints.agent import Agent
from moxwell.pve.endpoints.cluster import Cluster, PveVersion, Replication
from moxwell.pve.endpoints.firewall import Firewall
from moxwell.pve.endpoints.ha import Ha
from moxwell.pve.endpoints.lxc import Lxc
from moxwell.pve.endpoints.nodes import Nodes, TaskCalls
from moxwell.pve.endpoints.qemu import Qemu
from moxwell.pve.endpoints.sdn import Sdn
from moxwell.pve.endpoints.snapshots import Snapshots
from moxwell.pve.endpoints.storage import Storage
from moxwell.pve.transport import Transport


class PveWriter:
    """One Proxmox VE cluster."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        calls = Calls(transport)
        self.cluster = Cluster(calls)
        self.nodes = Nodes(calls)
        self.qemu = Qemu(calls)
        self.lxc = Lxc(calls)
        self.agent = Agent(calls)
        self.snapshots = Snapshots(calls)
        self.storage = Storage(calls)
        self.tasks = TaskCalls(calls)
        self.pools = Pools(calls)
        self.access = Access(calls)
        self.ha = Ha(calls)
        self.sdn = Sdn(calls)
        self.firewall = Firewall(calls)
        self.replication = Replication(calls)

    @property
    def region(self) -> str:
        return self._transport.region

    async def version(self) -> PveVersion:
        """What answers there; also the cheapest way to see whether anything does."""
        return await self.cluster.version()

    async def close(self) -> None:
        await self._transport.close()
