"""The loops over claims and pools."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from moxwell.api.conditions import Condition
from moxwell.api.ipam import (
    GROUP,
    GlobalInClusterIPPool,
    InClusterIPPool,
    IPAddress,
    IPAddressClaim,
    IPAddressClaimStatus,
    NameRef,
    PoolStatus,
)
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.ipam import plan
from moxwell.errors import Conflict, Missing
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Outcome
from moxwell.runtime.watches import Watch

Pool = InClusterIPPool | GlobalInClusterIPPool
POOLS: dict[str, Any] = {
    "InClusterIPPool": InClusterIPPool,
    "GlobalInClusterIPPool": GlobalInClusterIPPool,
}
RETRY_SECONDS = 10.0


class Resting:
    """Addresses that were given back a moment ago and are not given again yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[tuple[str, str], datetime] = {}

    def put(self, pool: str, address: str, seconds: int | None) -> None:
        if seconds:
            self._until[pool, address] = self._clock.now() + timedelta(seconds=seconds)

    def of(self, pool: str) -> list[str]:
        now = self._clock.now()
        self._until = {key: until for key, until in self._until.items() if until > now}
        return [address for (name, address) in self._until if name == pool]


class Claims:
    """Gives each claim an address, and takes it back with the claim."""

    kind = IPAddressClaim
    finalizer = "ipam.cluster.x-k8s.io/ReleaseAddress"

    def __init__(self, kube: Kube, clock: Clock, claims: Any) -> None:
        self._kube, self._claims = kube, claims
        self._resting = Resting(clock)
        self._one_at_a_time = asyncio.Lock()
        self.watches: Sequence[Watch] = tuple(Watch(p, self._waiting) for p in POOLS.values())

    def _waiting(self, pool: Pool) -> list[Key]:
        return [
            Key(c.namespace, c.name)
            for c in self._claims.list()
            if c.spec.pool_ref.name == pool.name and not c.status.address_ref.name
        ]

    async def reconcile(self, claim: IPAddressClaim) -> Outcome[IPAddressClaimStatus]:
        ref = claim.spec.pool_ref
        if ref.api_group != GROUP or ref.kind not in POOLS:
            return Outcome(None, settled=True)  # another provider's pool
        pool = await self._pool(claim)
        if claim.deleting:
            await self._release(claim, pool)
            return Outcome(None, settled=True)
        if await self._kube.find(IPAddress, claim.name, claim.namespace) is not None:
            return Outcome(_given(claim))
        if pool is None:
            raise Missing(f"{ref.kind} {ref.name} does not exist")
        async with self._one_at_a_time:
            address = plan.choose(pool.spec, await self._taken(pool))
            if address is None:
                return Outcome(_exhausted(pool), again=RETRY_SECONDS)
            with suppress(Conflict):
                await self._kube.create(plan.new_address(claim, pool.spec, address))
        return Outcome(_given(claim))

    async def _pool(self, claim: IPAddressClaim) -> Pool | None:
        kind = POOLS[claim.spec.pool_ref.kind]
        space = "" if kind is GlobalInClusterIPPool else claim.namespace
        found: Pool | None = await self._kube.find(kind, claim.spec.pool_ref.name, space)
        return found

    async def _taken(self, pool: Pool) -> list[str]:
        given = [a.spec.address for a in await addresses_of(self._kube, pool)]
        return given + self._resting.of(_name(pool))

    async def _release(self, claim: IPAddressClaim, pool: Pool | None) -> None:
        address = await self._kube.find(IPAddress, claim.name, claim.namespace)
        if address is None:
            return
        if pool is not None:
            grace = pool.spec.address_reuse_grace_period_seconds
            self._resting.put(_name(pool), address.spec.address, grace)
        kept = [f for f in address.metadata.finalizers if f != plan.PROTECT]
        change = {"metadata": {"finalizers": kept}}
        with suppress(Missing):
            await self._kube.merge(IPAddress, address.name, change, address.namespace)
            await self._kube.delete(IPAddress, address.name, address.namespace, uid=address.uid)


class Pools:
    """Counts what is left in a pool."""

    finalizer = ""

    def __init__(self, kube: Kube, kind: type[Any]) -> None:
        self.kind = kind
        self._kube = kube
        self.watches: Sequence[Watch] = (Watch(IPAddress, self._pool_of),)

    def _pool_of(self, address: IPAddress) -> list[Key]:
        ref = address.spec.pool_ref
        space = address.namespace if self.kind is InClusterIPPool else ""
        return [Key(space, ref.name)] if POOLS.get(ref.kind) is self.kind else []

    async def reconcile(self, pool: Pool) -> Outcome[PoolStatus]:
        taken = [a.spec.address for a in await addresses_of(self._kube, pool)]
        return Outcome(PoolStatus(ip_addresses=plan.count(pool.spec, taken)))


async def addresses_of(kube: Kube, pool: Pool) -> list[IPAddress]:
    """The addresses given from a pool."""
    page = await kube.list(IPAddress, pool.namespace)
    kind = pool.resource.kind
    return [
        a for a in page.items if (a.spec.pool_ref.kind, a.spec.pool_ref.name) == (kind, pool.name)
    ]


def _name(pool: Pool) -> str:
    return f"{pool.resource.kind}/{pool.key}"


def _given(claim: IPAddressClaim) -> IPAddressClaimStatus:
    said = Condition(type="Ready", status="True", reason="AddressAllocated")
    return IPAddressClaimStatus(address_ref=NameRef(name=claim.name), conditions=(said,))


def _exhausted(pool: Pool) -> IPAddressClaimStatus:
    said = Condition(
        type="Ready",
        status="False",
        reason="PoolExhausted",
        message=f"{pool.resource.kind} {pool.name} has no free address: add addresses to it",
    )
    return IPAddressClaimStatus(conditions=(said,))
