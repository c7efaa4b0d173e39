"""
Parses address ranges: ``10.0.0.5``, ``10.0.0.5-10.0.0.9``, ``10.0.0.0/24``.

Ranges are pairs of integers, because an IPv6 /64 is too large for a list.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from moxwell.errors import Invalid


@dataclass(frozen=True, slots=True, order=True)
class AddressRange:
    """An inclusive range of addresses of one IP version."""

    version: int
    first: int
    last: int

    def __contains__(self, address: str) -> bool:
        ip = ipaddress.ip_address(address)
        return ip.version == self.version and self.first <= int(ip) <= self.last

    def overlaps(self, other: "AddressRange") -> bool:
        """Report whether the ranges share an address."""
        return (
            self.version == other.version and self.first <= other.last and other.first <= self.last
        )


def parse_address_range(text: str) -> AddressRange:
    """
    Parse an address, a range ``a-b`` or a CIDR; a CIDR includes its first and last address, as in
    the in-cluster IPAM provider.
    """
    try:
        if "/" in text:
            net = ipaddress.ip_network(text.strip(), strict=False)
            return AddressRange(net.version, int(net[0]), int(net[-1]))
        first, _, last = text.partition("-")
        low = ipaddress.ip_address(first.strip())
        high = ipaddress.ip_address((last or first).strip())
    except ValueError as error:
        raise Invalid(f"{text!r} is not an address, a range a-b or a CIDR") from error
    if low.version != high.version or int(low) > int(high):
        raise Invalid(f"{text!r} is not a range: its end is before its start")
    return AddressRange(low.version, int(low), int(high))


def parse_address_ranges(texts: Iterable[str]) -> tuple[AddressRange, ...]:
    """Parse several ranges."""
    return tuple(parse_address_range(text) for text in texts)


def overlaps(first: Iterable[AddressRange], second: Iterable[AddressRange]) -> bool:
    """Report whether two sets of ranges share an address."""
    others = tuple(second)
    return any(a.overlaps(b) for a in first for b in others)
