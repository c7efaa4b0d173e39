"""
Endpoints of the cluster: version, resources, status, VMIDs, recent tasks, options, replication.

``resources`` is up to ten seconds old: a new guest has status ``unknown`` in it, and a re-created
VMID shows the name of its predecessor for a while. The inventory corrects that.
"""

from msgspec import Struct

from moxwell.pve.caller import ReadEndpoints, WriteEndpoints
from moxwell.pve.values import Number, Params, path


class PveVersion(Struct, frozen=True):
    """Release of the API server."""

    version: str
    release: str = ""
    repoid: str = ""

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])


class ClusterResource(Struct, frozen=True, kw_only=True):
    """A row of ``/cluster/resources``: a host, guest, storage, pool, SDN zone or network."""

    id: str
    type: str
    node: str = ""
    status: str = ""
    # guests
    vmid: int = 0
    name: str = ""
    template: bool = False
    tags: str = ""
    pool: str = ""
    lock: str = ""
    hastate: str = ""
    uptime: int = 0
    # hosts and guests
    cpu: Number = 0.0
    maxcpu: Number = 0.0
    mem: int = 0
    maxmem: int = 0
    disk: int = 0
    maxdisk: int = 0
    # storages
    storage: str = ""
    plugintype: str = ""
    content: str = ""
    shared: bool = False
    # SDN
    sdn: str = ""
    network: str = ""


class ClusterMember(Struct, frozen=True, kw_only=True):
    """A row of ``/cluster/status``: the cluster itself or one of its hosts."""

    id: str
    type: str
    name: str = ""
    ip: str = ""
    online: bool = False
    local: bool = False
    quorate: bool | None = None
    nodes: int = 0
    nodeid: int = 0
    version: int = 0


class TaskRow(Struct, frozen=True, kw_only=True):
    """A task in a list; ``status`` is its exit text once it ended."""

    upid: str
    node: str = ""
    type: str = ""
    id: str = ""
    user: str = ""
    starttime: int = 0
    endtime: int | None = None
    status: str = ""

    @property
    def running(self) -> bool:
        return self.endtime is None and self.status in {"", "RUNNING", "running"}


class PciMapping(Struct, frozen=True, kw_only=True):
    """A PCI resource mapping: its devices per host, as property strings."""

    id: str
    map: tuple[str, ...] = ()
    description: str = ""


class ClusterReader(ReadEndpoints):
    """GET requests below ``/version`` and ``/cluster``."""

    async def version(self) -> PveVersion:
        return await self._caller.read(PveVersion, "/version")

    async def resources(self, type: str | None = None) -> tuple[ClusterResource, ...]:
        """List all resources, or only those of type ``vm``, ``storage``, ``node`` or ``sdn``."""
        return await self._caller.read(
            tuple[ClusterResource, ...], "/cluster/resources", {"type": type}
        )

    async def status(self) -> tuple[ClusterMember, ...]:
        return await self._caller.read(tuple[ClusterMember, ...], "/cluster/status")

    async def nextid(self, vmid: int | None = None) -> int:
        """Return a free VMID, or ``vmid`` if that is free; it is not reserved."""
        return await self._caller.read(int, "/cluster/nextid", {"vmid": vmid})

    async def tasks(self) -> tuple[TaskRow, ...]:
        """List recent tasks of all hosts, running ones included."""
        return await self._caller.read(tuple[TaskRow, ...], "/cluster/tasks")

    async def pci_mappings(self) -> tuple[PciMapping, ...]:
        """List the mappings with ``Mapping.Audit``, ``Mapping.Use`` or ``Mapping.Modify``."""
        return await self._caller.read(tuple[PciMapping, ...], "/cluster/mapping/pci")


class ReplicationJob(Struct, frozen=True, kw_only=True):
    """A replication job."""

    id: str
    guest: int = 0
    target: str = ""
    type: str = ""
    schedule: str = ""
    rate: Number | None = None
    disable: bool = False
    comment: str = ""
    jobnum: int = 0
    source: str = ""


class ReplicationReader(ReadEndpoints):
    """GET requests below ``/cluster/replication`` and ``/nodes/{node}/replication``."""

    async def list(self) -> tuple[ReplicationJob, ...]:
        return await self._caller.read(tuple[ReplicationJob, ...], "/cluster/replication")


class ReplicationWriter(WriteEndpoints, ReplicationReader):
    """POST, PUT and DELETE requests below the same paths."""

    async def create(
        self,
        job: str,
        target: str,
        *,
        schedule: str | None = None,
        rate: float | None = None,
        comment: str | None = None,
    ) -> None:
        """Create a replication job; ``job`` is ``<vmid>-<number>``."""
        params: Params = {
            "id": job, "target": target, "type": "local",
            "schedule": schedule, "rate": rate, "comment": comment,
        }  # fmt: skip
        await self._caller.write("POST", "/cluster/replication", params)

    async def update(
        self,
        job: str,
        *,
        schedule: str | None = None,
        rate: float | None = None,
        disable: bool | None = None,
        comment: str | None = None,
    ) -> None:
        params: Params = {
            "schedule": schedule, "rate": rate, "disable": disable, "comment": comment,
        }  # fmt: skip
        await self._caller.write("PUT", path("cluster", "replication", job), params)

    async def delete(
        self, job: str, *, keep: bool | None = None, force: bool | None = None
    ) -> None:
        params: Params = {"keep": keep, "force": force}
        await self._caller.write("DELETE", path("cluster", "replication", job), params)
