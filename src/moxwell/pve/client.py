"""
The client of one region (a Proxmox VE cluster): every endpoint that Moxwell uses, grouped by area.

``PveReader`` has the GET requests only; code that observes takes it, so that mypy refuses a write.
``PveWriter`` adds the others and belongs to steps (:mod:`moxwell.pve.steps`). Every method sends
one request; none waits for a task or retries.
"""

from functools import cached_property

from moxwell.pve.caller import ReadCaller, WriteCaller
from moxwell.pve.effects import Effects, Owned
from moxwell.pve.endpoints.access import AccessReader, AccessWriter, PoolsReader, PoolsWriter
from moxwell.pve.endpoints.agent import AgentReader
from moxwell.pve.endpoints.cluster import (
    ClusterReader,
    PveVersion,
    ReplicationReader,
    ReplicationWriter,
)
from moxwell.pve.endpoints.firewall import FirewallReader, FirewallWriter
from moxwell.pve.endpoints.ha import HaReader, HaWriter
from moxwell.pve.endpoints.lxc import LxcReader
from moxwell.pve.endpoints.nodes import NodesReader, TasksReader
from moxwell.pve.endpoints.qemu import QemuReader, QemuWriter
from moxwell.pve.endpoints.sdn import SdnReader, SdnWriter
from moxwell.pve.endpoints.snapshots import SnapshotsReader, SnapshotsWriter
from moxwell.pve.endpoints.storage import StorageReader, StorageWriter
from moxwell.pve.transport import Transport

HA_RULES_MAJOR = 9


class PveReader:
    """Reads one region."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._caller = ReadCaller(transport)

    @property
    def region(self) -> str:
        return self._transport.region

    async def version(self) -> PveVersion:
        """Return the release of the API server; the cheapest request there is."""
        return await self.cluster.version()

    async def has_ha_rules(self) -> bool:
        """Return whether HA has rules, as from Proxmox VE 9 on; before, it has groups."""
        return (await self.version()).major >= HA_RULES_MAJOR

    async def close(self) -> None:
        await self._transport.close()

    @cached_property
    def cluster(self) -> ClusterReader:
        return ClusterReader(self._caller)

    @cached_property
    def nodes(self) -> NodesReader:
        return NodesReader(self._caller)

    @cached_property
    def qemu(self) -> QemuReader:
        return QemuReader(self._caller)

    @cached_property
    def lxc(self) -> LxcReader:
        return LxcReader(self._caller)

    @cached_property
    def agent(self) -> AgentReader:
        return AgentReader(self._caller)

    @cached_property
    def snapshots(self) -> SnapshotsReader:
        return SnapshotsReader(self._caller)

    @cached_property
    def storage(self) -> StorageReader:
        return StorageReader(self._caller)

    @cached_property
    def tasks(self) -> TasksReader:
        return TasksReader(self._caller)

    @cached_property
    def pools(self) -> PoolsReader:
        return PoolsReader(self._caller)

    @cached_property
    def access(self) -> AccessReader:
        return AccessReader(self._caller)

    @cached_property
    def ha(self) -> HaReader:
        return HaReader(self._caller)

    @cached_property
    def sdn(self) -> SdnReader:
        return SdnReader(self._caller)

    @cached_property
    def firewall(self) -> FirewallReader:
        return FirewallReader(self._caller)

    @cached_property
    def replication(self) -> ReplicationReader:
        return ReplicationReader(self._caller)


class PveWriter(PveReader):
    """Reads and writes one region; ``owned`` None puts no limit on the targets."""

    _caller: WriteCaller

    def __init__(
        self, transport: Transport, effects: Effects | None = None, owned: Owned | None = None
    ) -> None:
        super().__init__(transport)
        self._caller = WriteCaller(transport, effects or Effects(), owned)

    @cached_property
    def qemu(self) -> QemuWriter:
        return QemuWriter(self._caller)

    @cached_property
    def snapshots(self) -> SnapshotsWriter:
        return SnapshotsWriter(self._caller)

    @cached_property
    def storage(self) -> StorageWriter:
        return StorageWriter(self._caller)

    @cached_property
    def pools(self) -> PoolsWriter:
        return PoolsWriter(self._caller)

    @cached_property
    def access(self) -> AccessWriter:
        return AccessWriter(self._caller)

    @cached_property
    def ha(self) -> HaWriter:
        return HaWriter(self._caller)

    @cached_property
    def sdn(self) -> SdnWriter:
        return SdnWriter(self._caller)

    @cached_property
    def firewall(self) -> FirewallWriter:
        return FirewallWriter(self._caller)

    @cached_property
    def replication(self) -> ReplicationWriter:
        return ReplicationWriter(self._caller)
