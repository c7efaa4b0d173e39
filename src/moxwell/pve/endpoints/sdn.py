"""
Endpoints of software-defined networking: zones, vnets, subnets, IPAM addresses.

Changes stay pending until ``apply``. The id of a subnet is ``zone-net-mask``. There is no "next
free address": the caller chooses one and invents a MAC address for it.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from moxwell.pve.caller import ReadEndpoints, WriteEndpoints
from moxwell.pve.values import Params, Upid, path


class SdnZone(Struct, frozen=True, kw_only=True):
    zone: str
    type: str = ""
    nodes: str = ""
    ipam: str = ""
    dhcp: str = ""
    mtu: int | None = None
    state: str = ""
    pending: dict[str, Any] | None = None


class SdnVnet(Struct, frozen=True, kw_only=True):
    vnet: str
    zone: str = ""
    type: str = ""
    tag: int | None = None
    alias: str = ""
    state: str = ""


class SdnSubnet(Struct, frozen=True, kw_only=True):
    subnet: str
    cidr: str = ""
    network: str = ""
    mask: int | None = None
    gateway: str = ""
    vnet: str = ""
    zone: str = ""
    snat: bool = False
    state: str = ""
    dhcp_range: tuple[Any, ...] = field(name="dhcp-range", default=())


class SdnController(Struct, frozen=True, kw_only=True):
    controller: str
    type: str = ""
    state: str = ""


class IpamEntry(Struct, frozen=True, kw_only=True):
    """An address in an IPAM."""

    ip: str = ""
    mac: str = ""
    vmid: int | None = None
    hostname: str = ""
    vnet: str = ""
    zone: str = ""
    subnet: str = ""
    gateway: bool = False


class SdnReader(ReadEndpoints):
    """GET requests below ``/cluster/sdn``."""

    async def zones(
        self, *, type: str | None = None, pending: bool | None = None, running: bool | None = None
    ) -> tuple[SdnZone, ...]:
        params: Params = {"type": type, "pending": pending, "running": running}
        return await self._caller.read(tuple[SdnZone, ...], "/cluster/sdn/zones", params)

    async def vnets(
        self, *, pending: bool | None = None, running: bool | None = None
    ) -> tuple[SdnVnet, ...]:
        params: Params = {"pending": pending, "running": running}
        return await self._caller.read(tuple[SdnVnet, ...], "/cluster/sdn/vnets", params)

    async def subnets(self, vnet: str, *, pending: bool | None = None) -> tuple[SdnSubnet, ...]:
        where = path("cluster", "sdn", "vnets", vnet, "subnets")
        return await self._caller.read(tuple[SdnSubnet, ...], where, {"pending": pending})

    async def controllers(self, *, pending: bool | None = None) -> tuple[SdnController, ...]:
        params: Params = {"pending": pending}
        return await self._caller.read(
            tuple[SdnController, ...], "/cluster/sdn/controllers", params
        )

    async def leases(self, ipam: str) -> tuple[IpamEntry, ...]:
        where = path("cluster", "sdn", "ipams", ipam, "status")
        return await self._caller.read(tuple[IpamEntry, ...], where)


class SdnWriter(WriteEndpoints, SdnReader):
    """POST, PUT and DELETE requests below ``/cluster/sdn``."""

    async def create_vnet(
        self,
        vnet: str,
        zone: str,
        *,
        tag: int | None = None,
        alias: str | None = None,
        vlanaware: bool | None = None,
        isolate_ports: bool | None = None,
    ) -> None:
        params: Params = {
            "vnet": vnet, "zone": zone, "tag": tag, "alias": alias,
            "vlanaware": vlanaware, "isolate-ports": isolate_ports,
        }  # fmt: skip
        await self._caller.write("POST", "/cluster/sdn/vnets", params)

    async def update_vnet(
        self, vnet: str, *, zone: str, tag: int | None = None, alias: str | None = None
    ) -> None:
        params: Params = {"zone": zone, "tag": tag, "alias": alias}
        params = {**params, "delete": "tag"} if tag is None else params
        await self._caller.write("PUT", path("cluster", "sdn", "vnets", vnet), params)

    async def delete_vnet(self, vnet: str) -> None:
        await self._caller.write("DELETE", path("cluster", "sdn", "vnets", vnet))

    async def create_subnet(
        self,
        vnet: str,
        cidr: str,
        *,
        gateway: str | None = None,
        snat: bool | None = None,
        dhcp_ranges: Sequence[str] = (),
        dhcp_dns_server: str | None = None,
        dnszoneprefix: str | None = None,
    ) -> None:
        """Create a subnet; a DHCP range is ``start-address=10.0.0.10,end-address=10.0.0.99``."""
        params: Params = {
            "subnet": cidr, "type": "subnet", "gateway": gateway, "snat": snat,
            "dhcp-range": tuple(dhcp_ranges) or None, "dhcp-dns-server": dhcp_dns_server,
            "dnszoneprefix": dnszoneprefix,
        }  # fmt: skip
        await self._caller.write("POST", path("cluster", "sdn", "vnets", vnet, "subnets"), params)

    async def update_subnet(
        self,
        vnet: str,
        subnet: str,
        *,
        gateway: str | None = None,
        snat: bool | None = None,
        dhcp_ranges: Sequence[str] = (),
    ) -> None:
        """Change a subnet; what is empty is removed."""
        removed = [*(["gateway"] if gateway is None else []),
                   *(["dhcp-range"] if not dhcp_ranges else [])]  # fmt: skip
        params: Params = {
            "gateway": gateway, "snat": snat, "dhcp-range": tuple(dhcp_ranges) or None,
            "delete": ",".join(removed) or None,
        }  # fmt: skip
        where = path("cluster", "sdn", "vnets", vnet, "subnets", subnet)
        await self._caller.write("PUT", where, params)

    async def delete_subnet(self, vnet: str, subnet: str) -> None:
        await self._caller.write("DELETE", path("cluster", "sdn", "vnets", vnet, "subnets", subnet))

    async def reserve(self, vnet: str, *, zone: str, ip: str, mac: str) -> None:
        params: Params = {"zone": zone, "ip": ip, "mac": mac}
        await self._caller.write("POST", path("cluster", "sdn", "vnets", vnet, "ips"), params)

    async def release(self, vnet: str, *, zone: str, ip: str, mac: str) -> None:
        params: Params = {"zone": zone, "ip": ip, "mac": mac}
        await self._caller.write("DELETE", path("cluster", "sdn", "vnets", vnet, "ips"), params)

    async def apply(self) -> Upid | None:
        """Apply pending changes on the hosts."""
        return await self._caller.maybe_start_task("PUT", "/cluster/sdn")
