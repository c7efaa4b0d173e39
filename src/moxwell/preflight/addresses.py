"""
Checks of address ranges for nodes: inside their subnet, without overlap, and not answering. Pure.

``probe.answering`` finds the addresses that answer although no node of ours has them.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from moxwell.api.infra.address_ranges import AddressRange, parse_address_ranges
from moxwell.errors import Invalid
from moxwell.preflight.outcome import RegionCheck, failed, passed

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class AddressPlan:
    """The addresses that nodes of a cluster or pool get."""

    name: str
    addresses: tuple[str, ...]
    prefix: int = 24
    gateway: str = ""

    def ranges(self) -> tuple[AddressRange, ...]:
        """The ranges; Invalid if one cannot be read."""
        return parse_address_ranges(self.addresses)

    def subnet(self) -> IpNetwork:
        """The network of the gateway, else of the first address."""
        first = self.ranges()[0]
        start = self.gateway or str(_address(first.version, first.first))
        try:
            return ipaddress.ip_network(f"{start}/{self.prefix}", strict=False)
        except ValueError as error:
            raise Invalid(f"{start}/{self.prefix} is not a network") from error


def check_addresses(
    plans: Iterable[AddressPlan],
    reserved: Mapping[str, str],
    answering: Mapping[str, Iterable[str]] | None = None,
) -> tuple[RegionCheck, ...]:
    """
    Check plans against each other and against reserved networks or addresses by name.

    ``answering`` has, by plan, the addresses that answer and belong to no node of ours.
    """
    found: list[RegionCheck] = []
    valid: list[AddressPlan] = []
    for plan in plans:
        problems = list(_inside(plan))
        found += problems
        valid += [plan] if not problems else []
    found += [c for a, b in combinations(valid, 2) for c in _overlap(a, b)]
    found += [c for plan in valid for c in _reserved(plan, reserved)]
    for name, addresses in sorted((answering or {}).items()):
        if taken := sorted(addresses):
            do = "remove them from the range, or disconnect what has them"
            text = f"{name}: addresses that answer already: {', '.join(taken)}"
            found.append(failed("addresses", text, do))
    if not found and valid:
        found.append(passed("addresses", "the address ranges are free"))
    return tuple(found)


def _inside(plan: AddressPlan) -> Iterator[RegionCheck]:
    """Every range is inside the subnet; the IPAM leaves out gateway and network addresses."""
    try:
        ranges, subnet = plan.ranges(), plan.subnet()
    except (Invalid, IndexError) as error:
        yield failed("addresses", f"{plan.name}: {error}", "correct the addresses")
        return
    low, high = int(subnet[0]), int(subnet[-1])
    for each in ranges:
        shown = f"{_address(each.version, each.first)}-{_address(each.version, each.last)}"
        if each.version != subnet.version or each.first < low or each.last > high:
            text = f"{plan.name}: {shown} is not inside {subnet}"
            yield failed("addresses", text, "correct the range, the prefix or the gateway")


def _overlap(first: AddressPlan, second: AddressPlan) -> Iterator[RegionCheck]:
    if any(a.overlaps(b) for a in first.ranges() for b in second.ranges()):
        text = f"the addresses of {first.name} and {second.name} overlap"
        yield failed("addresses", text, "give each its own range, or let both use one pool")


def _reserved(plan: AddressPlan, reserved: Mapping[str, str]) -> Iterator[RegionCheck]:
    for name, text in sorted(reserved.items()):
        (other,) = parse_address_ranges([text])
        if any(each.overlaps(other) for each in plan.ranges()):
            what = f"the addresses of {plan.name} overlap with {name} ({text})"
            yield failed("addresses", what, "choose another range for nodes")


def _address(version: int, number: int) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return (ipaddress.IPv4Address if version == 4 else ipaddress.IPv6Address)(number)
