"""
Which address of an InClusterIPPool a claim gets, and how full the pool is. Pure.

The first free address is chosen, as Cluster API's in-cluster IPAM provider does.
"""

from collections.abc import Iterable

from moxwell.api.infra.address_ranges import parse_address_range, parse_address_ranges
from moxwell.api.ipam import PoolCount, PoolSpec
from moxwell.scheduling import addresses

MAX_COUNT = 1 << 62  # an IPv6 pool may have more addresses than an integer field can hold


def reserved_addresses(pool: PoolSpec) -> set[str]:
    """The gateway, and the first and last address of a CIDR unless the pool allocates them."""
    reserved = {addresses.normal(pool.gateway)} if pool.gateway else set()
    if pool.allocate_reserved_ip_addresses:
        return reserved
    for text in pool.addresses:
        if "/" in text:
            block = parse_address_range(text)
            ends = (block.first, block.last) if block.version == 4 else (block.first,)
            if block.last - block.first > 1:
                reserved |= {str(addresses.as_ip(block.version, n)) for n in ends}
    return reserved


class UnavailableAddresses:
    """Membership in the allocated addresses, the reserved ones and the excluded ranges."""

    def __init__(self, pool: PoolSpec, allocated: Iterable[str]) -> None:
        self._single = reserved_addresses(pool) | {addresses.normal(a) for a in allocated}
        self._ranges = parse_address_ranges(pool.excluded_addresses)

    def __contains__(self, address: object) -> bool:
        return address in self._single or any(str(address) in r for r in self._ranges)


def choose_address(pool: PoolSpec, allocated: Iterable[str]) -> str | None:
    """The first free address of a pool, or None if it is exhausted."""
    ranges = parse_address_ranges(pool.addresses)
    return addresses.choose_address(ranges, UnavailableAddresses(pool, allocated))


def usage(pool: PoolSpec, allocated: Iterable[str]) -> PoolCount:
    """Total, used, free and out-of-range addresses, as the pool's status lists them."""
    ranges = parse_address_ranges(pool.addresses)
    size = sum(r.last - r.first + 1 for r in ranges)
    reserved = sum(any(a in r for r in ranges) for a in reserved_addresses(pool))
    used = {addresses.normal(a) for a in allocated}
    inside = sum(any(a in r for r in ranges) for a in used)
    total = min(MAX_COUNT, size - reserved)
    return PoolCount(
        total=total, used=len(used), free=max(0, total - inside), out_of_range=len(used) - inside
    )
