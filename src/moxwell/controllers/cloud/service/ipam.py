"""
PVE's own IPAM as the place where addresses are taken and given back.

In: the vnet of the configuration. Out: what may be used, what is taken, and reservations. There is
no "next free address" in Proxmox, and a reservation wants a MAC: a made-up one stands for the
Service, and tells after a crash which address was already taken for it. Addresses that a subnet
hands out by DHCP are left to guests.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from moxwell.api.infra.address_ranges import Range, parse_range, parse_ranges
from moxwell.controllers.cloud.features import Balancer
from moxwell.errors import Invalid
from moxwell.pve import errors
from moxwell.pve.endpoints.sdn import Lease, Subnet
from moxwell.pve.regions import Region, Regions


@dataclass(frozen=True, slots=True)
class Free:
    """What an IPAM has: ranges to choose from, addresses taken in them, and by which MAC."""

    ranges: tuple[Range, ...]
    taken: frozenset[str] = frozenset()
    by_mac: tuple[tuple[str, str], ...] = ()  # MAC, address

    def of(self, mac: str, version: int) -> str:
        """The address of an IP version that is reserved under a MAC, or nothing."""
        mine = [address for owner, address in self.by_mac if owner == mac.upper()]
        return next((a for a in mine if (":" in a) == (version == 6)), "")

    def has(self, mac: str, address: str) -> bool:
        """Is the address reserved under the MAC?"""
        return (mac.upper(), address) in self.by_mac


class Pool:
    """Addresses of the configuration only: Kubernetes remembers who has which."""

    def __init__(self, settings: Balancer) -> None:
        self._free = Free(parse_ranges(settings.pool))

    async def look(self) -> Free:
        """All there is; what Services have is known elsewhere."""
        return self._free

    async def reserve(self, address: str, mac: str) -> bool:
        """Nothing to do."""
        return True

    async def release(self, address: str, mac: str) -> None:
        """Nothing to do."""


class VnetIpam:
    """Addresses of a vnet, reserved in the IPAM of its region."""

    def __init__(self, regions: Regions, settings: Balancer) -> None:
        self._regions, self._settings = regions, settings

    async def look(self) -> Free:
        """What is configured and what is taken, asked freshly."""
        sdn, settings = self._region().pve.sdn, self._settings
        leases = [x for x in await sdn.leases(settings.ipam) if x.zone == settings.zone]
        subnets = () if settings.pool else await sdn.subnets(settings.vnet)
        ranges = parse_ranges(settings.pool) or tuple(r for s in subnets for r in usable(s))
        return Free(ranges, frozenset(_plain(x.ip) for x in leases), tuple(_owned(leases)))

    async def reserve(self, address: str, mac: str) -> bool:
        """Whether it is ours now."""
        where = {"zone": self._settings.zone, "ip": address, "mac": mac}
        try:
            await self._region().pve.sdn.reserve(self._settings.vnet, **where)
        except errors.Exists:
            return (await self.look()).has(mac, address)
        return True

    async def release(self, address: str, mac: str) -> None:
        """Give it back, if it is still ours."""
        if not (await self.look()).has(mac, address):
            return
        where = {"zone": self._settings.zone, "ip": address, "mac": mac}
        await self._region().pve.sdn.release(self._settings.vnet, **where)

    def _region(self) -> Region:
        named = self._settings.region
        if named:
            return self._regions[named]
        if len(self._regions) != 1:
            raise Invalid("features.load_balancer.region: say which region's vnet it is")
        return self._regions.values()[0]


def usable(subnet: Subnet) -> tuple[Range, ...]:
    """A subnet without its ends, its gateway and what it hands out by DHCP."""
    net = ipaddress.ip_network(subnet.cidr or subnet.subnet, strict=False)
    first, last = int(net[0]), int(net[-1])
    if net.num_addresses > 2:
        first, last = first + 1, last - 1
    holes = [parse_range(_range_text(given)) for given in subnet.dhcp_range]
    if subnet.gateway:
        holes.append(parse_range(subnet.gateway))
    return tuple(_without(Range(net.version, first, last), holes))


def _without(whole: Range, holes: Sequence[Range]) -> Iterable[Range]:
    start = whole.first
    for hole in sorted(holes):
        if hole.first > start:
            yield Range(whole.version, start, min(hole.first - 1, whole.last))
        start = max(start, hole.last + 1)
    if start <= whole.last:
        yield Range(whole.version, start, whole.last)


def _range_text(given: Any) -> str:
    """PVE tells a range as an object or as a property string."""
    parts = given
    if isinstance(given, str):
        parts = dict(item.partition("=")[::2] for item in given.split(","))
    return f"{parts['start-address']}-{parts['end-address']}"


def _owned(leases: Iterable[Lease]) -> Iterable[tuple[str, str]]:
    return ((x.mac.upper(), _plain(x.ip)) for x in leases if x.mac)


def _plain(text: str) -> str:
    """An IPv6 address can be written in many ways; ours is the shortest."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text
