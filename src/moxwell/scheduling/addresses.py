"""
Chooses a free IP address of given ranges. Pure.

Addresses are iterated as integers and never listed, since an IPv6 /64 has too many.
"""

import ipaddress
from collections.abc import Container, Iterable, Iterator

from moxwell.api.infra.address_ranges import AddressRange

IP = ipaddress.IPv4Address | ipaddress.IPv6Address


def as_ip(version: int, number: int) -> IP:
    """The IP address with this integer value."""
    return ipaddress.IPv4Address(number) if version == 4 else ipaddress.IPv6Address(number)


def usable(ranges: Iterable[AddressRange], excluded: Container[str] = ()) -> Iterator[str]:
    """The addresses of the ranges in order, without the excluded ones."""
    for each in ranges:
        for number in range(each.first, each.last + 1):
            address = str(as_ip(each.version, number))
            if address not in excluded:
                yield address


def choose_address(ranges: Iterable[AddressRange], taken: Container[str]) -> str | None:
    """The first address that is not taken."""
    return next(usable(ranges, taken), None)


def normal(address: str) -> str:
    """The canonical spelling of an address."""
    return str(ipaddress.ip_address(address))
