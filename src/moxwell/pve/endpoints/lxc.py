"""Endpoints that read LXC containers; Moxwell creates none."""

from msgspec import Struct

from moxwell.pve.endpoints.guest import AnyGuestReader


class ContainerInterface(Struct, frozen=True, kw_only=True):
    name: str
    hwaddr: str = ""
    inet: str = ""
    inet6: str = ""


class LxcReader(AnyGuestReader):
    """GET requests below ``/nodes/{node}/lxc``."""

    _family = "lxc"

    async def interfaces(self, host: str, vmid: int) -> tuple[ContainerInterface, ...]:
        rows: tuple[ContainerInterface, ...] | None = await self._caller.read(
            tuple[ContainerInterface, ...] | None, self._at(host, vmid, "interfaces")
        )
        return rows or ()
