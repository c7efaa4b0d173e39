"""
Endpoints of the QEMU guest agent: network interfaces and files inside a guest.

The results are wrapped once more (``result``). A request to an agent that is not running takes the
server three seconds.
"""

from msgspec import Struct, field

from moxwell.pve.caller import ReadEndpoints
from moxwell.pve.values import path


class AgentAddress(Struct, frozen=True, kw_only=True):
    ip: str = field(name="ip-address")
    family: str = field(name="ip-address-type", default="ipv4")
    prefix: int = 0


class AgentInterface(Struct, frozen=True, kw_only=True):
    """A network interface inside the guest."""

    name: str
    mac: str = field(name="hardware-address", default="")
    addresses: tuple[AgentAddress, ...] = field(name="ip-addresses", default=())


class FileContent(Struct, frozen=True, kw_only=True):
    content: str = ""
    truncated: bool = False


class _Interfaces(Struct):
    result: tuple[AgentInterface, ...]


def _path(host: str, vmid: int, name: str) -> str:
    return path("nodes", host, "qemu", vmid, "agent", name)


class AgentReader(ReadEndpoints):
    """GET requests below ``/nodes/{node}/qemu/{vmid}/agent``."""

    async def interfaces(self, host: str, vmid: int) -> tuple[AgentInterface, ...]:
        where = _path(host, vmid, "network-get-interfaces")
        return (await self._caller.read(_Interfaces, where)).result

    async def read_file(self, host: str, vmid: int, file: str) -> FileContent:
        where = _path(host, vmid, "file-read")
        return await self._caller.read(FileContent, where, {"file": file})
