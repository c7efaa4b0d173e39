"""
Endpoints of the QEMU guest agent: network interfaces, OS, files and commands inside a guest.

The results are wrapped once more (``result``). The exit status of a command can be read only once,
and each request to an agent that is not running takes the server three seconds.
"""

from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct, field

from moxwell.pve.caller import ReadEndpoints, WriteEndpoints
from moxwell.pve.values import Params, path

R = TypeVar("R")


class AgentAddress(Struct, frozen=True, kw_only=True):
    ip: str = field(name="ip-address")
    family: str = field(name="ip-address-type", default="ipv4")
    prefix: int = 0


class AgentInterface(Struct, frozen=True, kw_only=True):
    """A network interface inside the guest."""

    name: str
    mac: str = field(name="hardware-address", default="")
    addresses: tuple[AgentAddress, ...] = field(name="ip-addresses", default=())


class CommandStatus(Struct, frozen=True, kw_only=True):
    """State of a command; ``code`` is set once it has exited by itself."""

    exited: bool
    code: int | None = field(name="exitcode", default=None)
    signal: int | None = None
    out: str = field(name="out-data", default="")
    err: str = field(name="err-data", default="")


class FileContent(Struct, frozen=True, kw_only=True):
    content: str = ""
    truncated: bool = False


class _Interfaces(Struct):
    result: tuple[AgentInterface, ...]


class _HostName(Struct, rename={"host_name": "host-name"}):
    host_name: str = ""


class _Name(Struct):
    result: _HostName


class _Pid(Struct):
    pid: int


def _path(host: str, vmid: int, name: str) -> str:
    return path("nodes", host, "qemu", vmid, "agent", name)


class AgentReader(ReadEndpoints):
    """GET requests below ``/nodes/{node}/qemu/{vmid}/agent``."""

    async def interfaces(self, host: str, vmid: int) -> tuple[AgentInterface, ...]:
        where = _path(host, vmid, "network-get-interfaces")
        return (await self._caller.read(_Interfaces, where)).result

    async def hostname(self, host: str, vmid: int) -> str:
        answer = await self._caller.read(_Name, _path(host, vmid, "get-host-name"))
        return answer.result.host_name

    async def exit(self, host: str, vmid: int, pid: int) -> CommandStatus:
        """Return the state of a command; after its exit it can be read once."""
        return await self._caller.read(
            CommandStatus, _path(host, vmid, "exec-status"), {"pid": pid}
        )

    async def read_file(self, host: str, vmid: int, file: str) -> FileContent:
        where = _path(host, vmid, "file-read")
        return await self._caller.read(FileContent, where, {"file": file})


class AgentWriter(WriteEndpoints, AgentReader):
    """POST, PUT and DELETE requests below ``/nodes/{node}/qemu/{vmid}/agent``."""

    async def ping(self, host: str, vmid: int) -> None:
        """Check the agent; raises ``AgentNotRunning`` if it does not answer."""
        await self._caller.write("POST", _path(host, vmid, "ping"))

    async def execute(
        self, host: str, vmid: int, command: Sequence[str], *, input_data: str | None = None
    ) -> int:
        """Start a command and return its process id."""
        params: Params = {"command": tuple(command), "input-data": input_data}
        where = _path(host, vmid, "exec")
        return (await self._caller.write_for(_Pid, "POST", where, params)).pid

    async def shutdown(self, host: str, vmid: int) -> None:
        await self._caller.write("POST", _path(host, vmid, "shutdown"))
