"""
The addresses that machines of a plan are likely to get from IP pools. Reads only.

The first free address is taken, as the in-cluster IPAM provider does; another provider may choose
another one.
"""

from typing import Any

from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.network import PoolRef
from moxwell.api.infra.zone_settings import generated_pools
from moxwell.api.ipam import GlobalInClusterIPPool, InClusterIPPool, IPAddress, PoolSpec
from moxwell.controllers.infra.zone_defaults import cluster_name
from moxwell.kube.reader import Reader
from moxwell.scheduling import ip_pools


class AddressPreview:
    """The allocated addresses of each pool as they change during one plan."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._allocated: dict[tuple[str, str], set[str]] = {}  # kind and name of the pool

    async def allocate(self, cluster: ProxmoxCluster, namespace: str, pool: PoolRef) -> str:
        """The next address of a pool, a text that says it is exhausted, or "" if it is unknown."""
        spec = await self._pool_spec(cluster, namespace, pool)
        if spec is None:
            return ""
        allocated = await self._allocated_of(pool, namespace)
        address = ip_pools.choose_address(spec, allocated)
        if address is not None:
            allocated.add(address)
        return address or f"none: {pool.kind} {pool.name} is exhausted"

    async def release(self, namespace: str, machine: str) -> None:
        """Free the addresses of a machine that is deleted."""
        page = await self._reader.list(IPAddress, namespace)
        for address in page.items:
            if address.spec.claim_ref.name.startswith(f"{machine}-net"):
                ref = address.spec.pool_ref
                pool = PoolRef(api_group=ref.api_group, kind=ref.kind, name=ref.name)
                (await self._allocated_of(pool, namespace)).discard(address.spec.address)

    async def _pool_spec(
        self, cluster: ProxmoxCluster, namespace: str, pool: PoolRef
    ) -> PoolSpec | None:
        is_global = pool.kind == "GlobalInClusterIPPool"
        kind: Any = GlobalInClusterIPPool if is_global else InClusterIPPool
        found = await self._reader.find(kind, pool.name, "" if is_global else namespace)
        if found is not None:
            spec: PoolSpec = found.spec
            return spec
        generated = generated_pools(cluster_name(cluster), cluster.spec)
        config = next((g.config for g in generated if g.name == pool.name), None)
        if config is None:
            return None
        return PoolSpec(addresses=config.addresses, prefix=config.prefix, gateway=config.gateway)

    async def _allocated_of(self, pool: PoolRef, namespace: str) -> set[str]:
        key = (pool.kind, pool.name)
        if key not in self._allocated:
            where = "" if pool.kind == "GlobalInClusterIPPool" else namespace
            page = await self._reader.list(IPAddress, where)
            specs = [a.spec for a in page.items]
            self._allocated[key] = {
                s.address for s in specs if (s.pool_ref.kind, s.pool_ref.name) == key
            }
        return self._allocated[key]
