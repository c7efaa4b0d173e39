"""
Ranges of addresses as people write them: ``10.0.0.5``, ``10.0.0.5-10.0.0.9``, ``10.0.0.0/24``.

Kept as pairs of integers: an IPv6 /64 has no list.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from moxwell.errors import Invalid


@dataclass(frozen=True, slots=True, order=True)
class AddressRange:
    """An inclusive range of addresses of one family."""

    version: int
    first: int
    last: int

    def __contains__(self, address: str) -> bool:
        ip = ipaddress.ip_address(address)
        return ip.version == self.version and self.first <= int(ip) <= self.last

    def overlaps(self, other: "AddressRange") -> bool:
        """Do the two share an address?"""
        return (
            self.version == other.version and self.first <= other.last and other.first <= self.last
        )


def parse_address_range(text: str) -> AddressRange:
    """One address, a range ``a-b``, or a CIDR (all of it, as the in-cluster provider reads it)."""
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
        raise Invalid(f"{text!r} is not a range: its end must not lie before its start")
    return AddressRange(low.version, int(low), int(high))


def parse_address_ranges(texts: Iterable[str]) -> tuple[AddressRange, ...]:
    """Several of them."""
    return tuple(parse_address_range(text) for text in texts)


def overlaps(first: Iterable[AddressRange], second: Iterable[AddressRange]) -> bool:
    """Do two sets of ranges share an address?"""
    others = tuple(second)
    return any(a.overlaps(b) for a in first for b in others)
