"""
The addresses that Services may get: a static pool, or the subnets of a vnet. Reads only.

Reservations in the IPAM of Proxmox VE need a MAC address; a generated one stands for the Service,
so that after a crash the reservation shows which address was already chosen for it. DHCP ranges of
a subnet are left to guests.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from moxwell.api.infra.address_ranges import AddressRange, parse_address_range, parse_address_ranges
from moxwell.controllers.cloud.features import LoadBalancerFeatures
from moxwell.errors import Invalid
from moxwell.pve.endpoints.sdn import IpamEntry, SdnSubnet, SdnZone
from moxwell.pve.regions import Region, Regions


@dataclass(frozen=True, slots=True)
class AvailableAddresses:
    """Ranges to choose from, reserved addresses, and the reservations by MAC address."""

    ranges: tuple[AddressRange, ...]
    reserved: frozenset[str] = frozenset()
    by_mac: tuple[tuple[str, str], ...] = ()  # MAC, address
    region: str = ""  # of the IPAM; empty: addresses are not reserved in Proxmox

    def reserved_for(self, mac: str, version: int) -> str:
        """The address of an IP version that is reserved for a MAC address, or an empty text."""
        mine = [address for owner, address in self.by_mac if owner == mac.upper()]
        return next((a for a in mine if (":" in a) == (version == 6)), "")

    def is_reserved_for(self, mac: str, address: str) -> bool:
        """Whether the address is reserved for the MAC address."""
        return (mac.upper(), address) in self.by_mac


class StaticPool:
    """Addresses of the configuration; which Service has which is noted on the Services."""

    def __init__(self, settings: LoadBalancerFeatures) -> None:
        self._available = AvailableAddresses(parse_address_ranges(settings.pool))

    async def read(self) -> AvailableAddresses:
        """The configured ranges."""
        return self._available


class VnetPool:
    """Addresses of a vnet, which are reserved in the IPAM of its region."""

    def __init__(self, regions: Regions, settings: LoadBalancerFeatures) -> None:
        self._regions, self._settings = regions, settings

    async def read(self) -> AvailableAddresses:
        """The ranges and reservations, read from Proxmox."""
        region, settings = self._region(), self._settings
        sdn = region.reader.sdn
        _check_zone(settings.zone, await sdn.zones())
        entries = [x for x in await sdn.leases(settings.ipam) if x.zone == settings.zone]
        subnets = () if settings.pool else await sdn.subnets(settings.vnet)
        ranges = parse_address_ranges(settings.pool) or tuple(r for s in subnets for r in usable(s))
        reserved = frozenset(_normalized(x.ip) for x in entries)
        return AvailableAddresses(ranges, reserved, tuple(_by_mac(entries)), region.name)

    def _region(self) -> Region:
        if self._settings.region:
            return self._regions[self._settings.region]
        if len(self._regions) != 1:
            raise Invalid("features.load_balancer.region: name the region of the vnet")
        return self._regions.values()[0]


def _check_zone(name: str, zones: Iterable[SdnZone]) -> None:
    """Refuse a zone without DHCP: Proxmox does not show which of its addresses are reserved."""
    if any(zone.zone == name and not zone.dhcp for zone in zones):
        raise Invalid(
            f"features.load_balancer: Proxmox does not show the reservations of zone {name}, which "
            f"has no DHCP: set its DHCP to dnsmasq and apply the SDN, or use a pool without a vnet"
        )


def usable(subnet: SdnSubnet) -> tuple[AddressRange, ...]:
    """A subnet without network and broadcast address, gateway and DHCP ranges."""
    net = ipaddress.ip_network(subnet.cidr or subnet.subnet, strict=False)
    first, last = int(net[0]), int(net[-1])
    if net.num_addresses > 2:
        first, last = first + 1, last - 1
    holes = [parse_address_range(_range_text(given)) for given in subnet.dhcp_range]
    if subnet.gateway:
        holes.append(parse_address_range(subnet.gateway))
    return tuple(_without(AddressRange(net.version, first, last), holes))


def _without(whole: AddressRange, holes: Sequence[AddressRange]) -> Iterable[AddressRange]:
    start = whole.first
    for hole in sorted(holes):
        if hole.first > start:
            yield AddressRange(whole.version, start, min(hole.first - 1, whole.last))
        start = max(start, hole.last + 1)
    if start <= whole.last:
        yield AddressRange(whole.version, start, whole.last)


def _range_text(given: Any) -> str:
    """A DHCP range, which Proxmox lists as an object or as a property string."""
    parts = given
    if isinstance(given, str):
        parts = dict(item.partition("=")[::2] for item in given.split(","))
    return f"{parts['start-address']}-{parts['end-address']}"


def _by_mac(entries: Iterable[IpamEntry]) -> Iterable[tuple[str, str]]:
    return ((x.mac.upper(), _normalized(x.ip)) for x in entries if x.mac)


def _normalized(text: str) -> str:
    """The shortest form of an address; IPv6 has many."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text
