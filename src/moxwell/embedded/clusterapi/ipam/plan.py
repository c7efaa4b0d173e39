"""Which address a claim gets, and how a pool stands: pure."""

from collections.abc import Iterable

from moxwell.api.infra.address_ranges import parse_range, parse_ranges
from moxwell.api.ipam import IPAddress, IPAddressClaim, IPAddressSpec, NameRef, PoolCount, PoolSpec
from moxwell.api.kinds import own
from moxwell.api.meta import ObjectMeta
from moxwell.scheduling import addresses

PROTECT = "ipam.cluster.x-k8s.io/ProtectAddress"
MOST_COUNTED = 1 << 62


def excluded(pool: PoolSpec) -> set[str]:
    """Addresses no claim gets: the gateway, and the ends of a CIDR unless the pool says so."""
    out = {addresses.normal(pool.gateway)} if pool.gateway else set()
    if not pool.allocate_reserved_ip_addresses:
        for text in pool.addresses:
            if "/" in text:
                block = parse_range(text)
                ends = (block.first, block.last) if block.version == 4 else (block.first,)
                if block.last - block.first > 1:
                    out |= {str(addresses.as_ip(block.version, n)) for n in ends}
    return out


class Without:
    """Membership in the taken addresses, the reserved ones and the excluded ranges."""

    def __init__(self, pool: PoolSpec, taken: Iterable[str]) -> None:
        self._single = excluded(pool) | {addresses.normal(a) for a in taken}
        self._ranges = parse_ranges(pool.excluded_addresses)

    def __contains__(self, address: object) -> bool:
        return address in self._single or any(str(address) in r for r in self._ranges)


def choose(pool: PoolSpec, taken: Iterable[str]) -> str | None:
    """The first free address of a pool."""
    ranges = parse_ranges(pool.addresses)
    return addresses.choose_address(ranges, Without(pool, taken))


def new_address(claim: IPAddressClaim, pool: PoolSpec, address: str) -> IPAddress:
    """The answer to a claim."""
    return IPAddress(
        metadata=ObjectMeta(
            name=claim.name,
            namespace=claim.namespace,
            labels=claim.metadata.labels,
            owner_references=(own(claim),),
            finalizers=(PROTECT,),
        ),
        spec=IPAddressSpec(
            claim_ref=NameRef(name=claim.name),
            pool_ref=claim.spec.pool_ref,
            address=address,
            prefix=pool.prefix,
            gateway=pool.gateway,
        ),
    )


def count(pool: PoolSpec, taken: Iterable[str]) -> PoolCount:
    """How a pool stands."""
    ranges = parse_ranges(pool.addresses)
    size = sum(r.last - r.first + 1 for r in ranges)
    reserved = sum(any(a in r for r in ranges) for a in excluded(pool))
    used = {addresses.normal(a) for a in taken}
    inside = sum(any(a in r for r in ranges) for a in used)
    total = min(MOST_COUNTED, size - reserved)
    return PoolCount(
        total=total, used=len(used), free=max(0, total - inside), out_of_range=len(used) - inside
    )
