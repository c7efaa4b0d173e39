"""
Endpoints of hosts: state, network, storages, hardware; and of tasks, which hosts keep.

A task can only be read on the host in its UPID. The log of a task that never existed is an object
on 8.4 and a list on 9.
"""

from msgspec import Struct, field

from moxwell.pve.caller import ReadEndpoints
from moxwell.pve.endpoints.cluster import TaskRow
from moxwell.pve.values import Number, Params, Upid, path


class HostRow(Struct, frozen=True, kw_only=True):
    """A row of ``/nodes``; without Sys.Audit only name and status are set."""

    node: str
    status: str = ""
    cpu: Number = 0.0
    maxcpu: int = 0
    mem: int = 0
    maxmem: int = 0
    uptime: int = 0
    ssl_fingerprint: str = ""


class Cpu(Struct, frozen=True, kw_only=True):
    """``cores`` counts all sockets, ``cpus`` the threads."""

    cpus: int = 0
    cores: int = 0
    sockets: int = 0
    model: str = ""
    flags: str = ""
    hvm: str = ""


class Memory(Struct, frozen=True, kw_only=True):
    total: int = 0
    used: int = 0
    free: int = 0
    available: int | None = None  # since 9


class Kernel(Struct, frozen=True, kw_only=True):
    """Kernel of a host; ``machine`` as in ``uname -m``."""

    release: str = ""
    machine: str = ""


class HostStatus(Struct, frozen=True, kw_only=True):
    """State of a host."""

    cpuinfo: Cpu = Cpu()
    memory: Memory = Memory()
    cpu: Number = 0.0
    uptime: int = 0
    pveversion: str = ""
    kversion: str = ""
    current_kernel: Kernel = field(name="current-kernel", default=Kernel())
    loadavg: tuple[str, ...] = ()


class HostInterface(Struct, frozen=True, kw_only=True):
    """A network interface of a host."""

    iface: str = ""
    type: str = ""
    active: bool = False
    autostart: bool = False
    address: str = ""
    netmask: str = ""
    cidr: str = ""
    gateway: str = ""
    cidr6: str = ""
    gateway6: str = ""
    bridge_ports: str = ""
    bridge_vlan_aware: bool = False
    mtu: int | None = None


class HostStorageStatus(Struct, frozen=True, kw_only=True):
    """A storage as seen from one host."""

    storage: str = ""
    type: str = ""
    content: str = ""
    active: bool = False
    enabled: bool = False
    shared: bool = False
    total: int = 0
    used: int = 0
    avail: int = 0

    def accepts(self, content: str) -> bool:
        return content in self.content.split(",")


class HostPciDevice(Struct, frozen=True, kw_only=True):
    """A PCI device of a host."""

    id: str
    vendor: str = ""
    device: str = ""
    class_: str = field(name="class", default="")
    vendor_name: str = ""
    device_name: str = ""
    iommugroup: int = -1
    mdev: bool = False


class HostNotes(Struct, frozen=True, kw_only=True):
    """The notes of a host, from its configuration."""

    description: str = ""


class HostTime(Struct, frozen=True, kw_only=True):
    """Clock of a host; ``time`` is UTC."""

    time: int
    timezone: str = ""


class Certificate(Struct, frozen=True, kw_only=True):
    """A TLS certificate of a host; times in seconds since 1970."""

    filename: str = ""
    subject: str = ""
    fingerprint: str = ""
    notbefore: int = 0
    notafter: int = 0


class NodesReader(ReadEndpoints):
    """GET requests below ``/nodes``."""

    async def list(self) -> tuple[HostRow, ...]:
        return await self._caller.read(tuple[HostRow, ...], "/nodes")

    async def status(self, host: str) -> HostStatus:
        return await self._caller.read(HostStatus, path("nodes", host, "status"))

    async def notes(self, host: str) -> str:
        """Return the notes of a host; needs Sys.Audit."""
        config = await self._caller.read(HostNotes, path("nodes", host, "config"))
        return config.description

    async def time(self, host: str) -> HostTime:
        return await self._caller.read(HostTime, path("nodes", host, "time"))

    async def certificates(self, host: str) -> tuple[Certificate, ...]:
        where = path("nodes", host, "certificates", "info")
        return await self._caller.read(tuple[Certificate, ...], where)

    async def network(self, host: str, *, type: str | None = None) -> tuple[HostInterface, ...]:
        where = path("nodes", host, "network")
        return await self._caller.read(tuple[HostInterface, ...], where, {"type": type})

    async def storages(
        self,
        host: str,
        *,
        content: str | None = None,
        storage: str | None = None,
        enabled: bool | None = None,
        target: str | None = None,
    ) -> tuple[HostStorageStatus, ...]:
        params: Params = {
            "content": content, "storage": storage, "enabled": enabled, "target": target,
        }  # fmt: skip
        where = path("nodes", host, "storage")
        return await self._caller.read(tuple[HostStorageStatus, ...], where, params)

    async def pci(self, host: str) -> tuple[HostPciDevice, ...]:
        where = path("nodes", host, "hardware", "pci")
        return await self._caller.read(tuple[HostPciDevice, ...], where)


class TaskStatus(Struct, frozen=True, kw_only=True):
    """A task; ``exitstatus`` is set once it has stopped."""

    upid: str = ""
    status: str = ""
    exitstatus: str | None = None
    type: str = ""
    id: str = ""
    node: str = ""
    user: str = ""
    starttime: int = 0

    @property
    def running(self) -> bool:
        return self.status == "running"


class LogLine(Struct, frozen=True):
    n: int
    t: str = ""


class TasksReader(ReadEndpoints):
    """GET requests below ``/nodes/{node}/tasks``; :mod:`moxwell.pve.tasks` polls them."""

    async def list(
        self,
        host: str,
        *,
        vmid: int | None = None,
        source: str | None = None,
        typefilter: str | None = None,
        since: int | None = None,
        errors: bool | None = None,
        limit: int | None = None,
    ) -> tuple[TaskRow, ...]:
        params: Params = {
            "vmid": vmid, "source": source, "typefilter": typefilter,
            "since": since, "errors": errors, "limit": limit,
        }  # fmt: skip
        return await self._caller.read(tuple[TaskRow, ...], path("nodes", host, "tasks"), params)

    async def status(self, upid: Upid) -> TaskStatus:
        return await self._caller.read(
            TaskStatus, path("nodes", upid.host, "tasks", upid, "status")
        )

    async def log(
        self, upid: Upid, *, start: int | None = None, limit: int | None = None
    ) -> tuple[str, ...]:
        """Return the lines of a task's log."""
        lines: tuple[LogLine, ...] | LogLine = await self._caller.read(
            tuple[LogLine, ...] | LogLine,
            path("nodes", upid.host, "tasks", upid, "log"),
            {"start": start, "limit": limit},
        )
        rows = (lines,) if isinstance(lines, LogLine) else lines
        return tuple(line.t for line in rows)
