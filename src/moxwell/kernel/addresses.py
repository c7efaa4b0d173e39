"""
Address arithmetic: ranges as people write them, and which addresses are free.

In flow texts (``10.0.0.5``, ``10.0.0.5-10.0.0.9``, ``10.0.0.0/24``) and what is taken; out flow
numbers and a choice. Ranges are kept as pairs of integers: an IPv6 /64 has no list.
"""

import ipaddress
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from moxwell.errors import Invalid

IP = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """An inclusive range of addresses of one family."""

    version: int
    first: int
    last: int

    def __contains__(self, address: str) -> bool:
        ip = ipaddress.ip_address(address)
        return ip.version == self.version and self.first <= int(ip) <= self.last

    def overlaps(self, other: "Range") -> bool:
        """Do the two share an address?"""
        return (
            self.version == other.version and self.first <= other.last and other.first <= self.last
        )


def parse_range(text: str) -> Range:
    """One address, a range ``a-b``, or a CIDR (all of it, as the in-cluster provider reads it)."""
    try:
        if "/" in text:
            net = ipaddress.ip_network(text.strip(), strict=False)
            return Range(net.version, int(net[0]), int(net[-1]))
        first, _, last = text.partition("-")
        low = ipaddress.ip_address(first.strip())
        high = ipaddress.ip_address((last or first).strip())
    except ValueError as error:
        raise Invalid(f"{text!r} is not an address, a range a-b or a CIDR") from error
    if low.version != high.version or int(low) > int(high):
        raise Invalid(f"{text!r} is not a range: its end must not lie before its start")
    return Range(low.version, int(low), int(high))


def parse_ranges(texts: Iterable[str]) -> tuple[Range, ...]:
    """Several of them."""
    return tuple(parse_range(text) for text in texts)


def as_ip(version: int, number: int) -> IP:
    """The address behind a number."""
    return ipaddress.IPv4Address(number) if version == 4 else ipaddress.IPv6Address(number)


def usable(ranges: Iterable[Range], excluded: Container[str] = ()) -> Iterator[str]:
    """Every address of the ranges in order, without the excluded ones."""
    for each in ranges:
        for number in range(each.first, each.last + 1):
            address = str(as_ip(each.version, number))
            if address not in excluded:
                yield address


def choose_address(ranges: Iterable[Range], taken: Container[str]) -> str | None:
    """The first free address."""
    return next(usable(ranges, taken), None)


def overlaps(first: Iterable[Range], second: Iterable[Range]) -> bool:
    """Do two sets of ranges share an address?"""
    others = tuple(second)
    return any(a.overlaps(b) for a in first for b in others)


def normal(address: str) -> str:
    """One spelling for each address; IPv6 has many."""
    return str(ipaddress.ip_address(address))
