"""
Which address is free.

In flow ranges and what is taken, out flows a choice. Addresses are walked as numbers and in order,
never listed: an IPv6 /64 has no list.
"""

import ipaddress
from collections.abc import Container, Iterable, Iterator

from moxwell.api.infra.address_ranges import AddressRange

IP = ipaddress.IPv4Address | ipaddress.IPv6Address


def as_ip(version: int, number: int) -> IP:
    """The address behind a number."""
    return ipaddress.IPv4Address(number) if version == 4 else ipaddress.IPv6Address(number)


def usable(ranges: Iterable[AddressRange], excluded: Container[str] = ()) -> Iterator[str]:
    """Every address of the ranges in order, without the excluded ones."""
    for each in ranges:
        for number in range(each.first, each.last + 1):
            address = str(as_ip(each.version, number))
            if address not in excluded:
                yield address


def choose_address(ranges: Iterable[AddressRange], taken: Container[str]) -> str | None:
    """The first free address."""
    return next(usable(ranges, taken), None)


def normal(address: str) -> str:
    """One spelling for each address; IPv6 has many."""
    return str(ipaddress.ip_address(address))
