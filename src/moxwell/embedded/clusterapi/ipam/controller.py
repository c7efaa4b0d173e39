"""
The in-cluster IPAM provider of Cluster API: addresses for IPAddressClaims from IP pools.

The claim controller must run with ``per_shard=1``: two concurrent passes would choose the same
address. A released address stays unused for the grace period of its pool; that list is kept in
memory and lost with the process.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from moxwell.api.ipam import (
    GlobalInClusterIPPool,
    InClusterIPPool,
    IPAddress,
    IPAddressClaim,
    IPAddressClaimStatus,
    PoolStatus,
)
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.ipam.plan import (
    POOL_KINDS,
    ClaimMove,
    IPAddressClaimReason,
    IPPool,
    ObservedIPAddressClaim,
    ReleaseAddress,
    describe,
    is_ours,
    next_move,
    pool_name,
)
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.reconciler import Note, Reconciler
from moxwell.runtime.watches import COALESCE_SECONDS, Watch
from moxwell.runtime.writes import Writes
from moxwell.scheduling import ip_pools

BY_POOL = "embedded.ip_pool"


class ReleasedAddresses:
    """Addresses that were released and are still in the grace period of their pool."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[tuple[str, str], datetime] = {}

    def add(self, pool: str, address: str, seconds: int | None) -> None:
        if seconds:
            self._until[pool, address] = self._clock.now() + timedelta(seconds=seconds)

    def of_pool(self, pool: str) -> list[str]:
        now = self._clock.now()
        self._until = {key: until for key, until in self._until.items() if until > now}
        return [address for (name, address) in self._until if name == pool]


class IPAddressClaimController(
    Reconciler[IPAddressClaim, ObservedIPAddressClaim, ClaimMove, IPAddressClaimStatus]
):
    """Reconciles IPAddressClaims of in-cluster pools."""

    kind = IPAddressClaim
    finalizer = "ipam.cluster.x-k8s.io/ReleaseAddress"

    def __init__(self, kube: Kube, clock: Clock, caches: Caches) -> None:
        self._kube = kube
        self._claims, self._addresses = caches.of(IPAddressClaim), caches.of(IPAddress)
        self._released = ReleasedAddresses(clock)
        self.watches: Sequence[Watch] = tuple(
            Watch(kind, self._waiting) for kind in POOL_KINDS.values()
        )

    def _waiting(self, pool: IPPool) -> list[Key]:
        """Claims of the pool that have no address yet."""
        keys = (Key(c.namespace, c.name) for c in self._claims.list() if _names(c, pool))
        return [key for key in keys if self._addresses.find(key) is None]

    async def see(self, claim: IPAddressClaim, reader: Reader) -> ObservedIPAddressClaim:
        if not is_ours(claim):
            return ObservedIPAddressClaim()
        pool = await _find_pool(claim, reader)
        address = await reader.find(IPAddress, claim.name, claim.namespace)
        if pool is None or address is not None or claim.deleting:
            return ObservedIPAddressClaim(pool, address)
        page = await reader.list(IPAddress, pool.namespace)  # live: a cache may lack the last one
        allocated = [a.spec.address for a in page.items if _is_from(a, pool)]
        return ObservedIPAddressClaim(
            pool, None, allocated + self._released.of_pool(pool_name(pool))
        )

    def plan(self, claim: IPAddressClaim, seen: ObservedIPAddressClaim) -> ClaimMove:
        return next_move(claim, seen)

    async def act(self, move: ClaimMove) -> Any:
        if isinstance(move, ReleaseAddress):
            self._released.add(move.pool, move.address, move.grace_seconds)
            await move.writes.perform(self._kube)
        elif isinstance(move, Writes):
            await move.perform(self._kube)

    def describe(
        self, claim: IPAddressClaim, seen: ObservedIPAddressClaim, move: ClaimMove
    ) -> IPAddressClaimStatus | None:
        return describe(claim, move)

    def events(
        self, claim: IPAddressClaim, seen: ObservedIPAddressClaim, move: ClaimMove
    ) -> Sequence[Note]:
        if isinstance(move, Wait) and move.reason == IPAddressClaimReason.POOL_NOT_FOUND:
            return (Note(move.reason, move.message, "Warning"),)
        return ()


def _names(claim: IPAddressClaim, pool: IPPool) -> bool:
    ref = claim.spec.pool_ref
    return (ref.kind, ref.name) == (pool.resource.kind, pool.name)


def _is_from(address: IPAddress, pool: IPPool) -> bool:
    ref = address.spec.pool_ref
    return (ref.kind, ref.name) == (pool.resource.kind, pool.name)


async def _find_pool(claim: IPAddressClaim, reader: Reader) -> IPPool | None:
    kind = POOL_KINDS[claim.spec.pool_ref.kind]
    namespace = "" if kind is GlobalInClusterIPPool else claim.namespace
    found: IPPool | None = await reader.find(kind, claim.spec.pool_ref.name, namespace)
    return found


def by_pool(address: IPAddress) -> Iterable[str]:
    """Index function: the kind and name of the pool of an IPAddress."""
    ref = address.spec.pool_ref
    return (f"{ref.kind}/{ref.name}",)


class IPPoolController(Reconciler[IPPool, tuple[str, ...], Done, PoolStatus]):
    """Counts the addresses of a pool; ``kind`` is one of the two pool kinds."""

    def __init__(self, kind: type[Any], addresses: Cache[Any]) -> None:
        self.kind, self._addresses = kind, addresses
        addresses.add_index(BY_POOL, by_pool)
        self.watches: Sequence[Watch] = (Watch(IPAddress, self._pool_of, delay=COALESCE_SECONDS),)

    def _pool_of(self, address: IPAddress) -> list[Key]:
        ref = address.spec.pool_ref
        namespace = address.namespace if self.kind is InClusterIPPool else ""
        return [Key(namespace, ref.name)] if POOL_KINDS.get(ref.kind) is self.kind else []

    async def see(self, pool: IPPool, reader: Reader) -> tuple[str, ...]:
        found = self._addresses.by(BY_POOL, f"{pool.resource.kind}/{pool.name}")
        inside = [a for a in found if not pool.namespace or a.namespace == pool.namespace]
        return tuple(a.spec.address for a in inside)

    def plan(self, pool: IPPool, seen: tuple[str, ...]) -> Done:
        return Done()

    async def act(self, move: Done) -> None:
        return None

    def describe(self, pool: IPPool, seen: tuple[str, ...], move: Done) -> PoolStatus:
        return PoolStatus(ip_addresses=ip_pools.usage(pool.spec, seen))
