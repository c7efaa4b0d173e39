"""
Observes one ProxmoxCluster: its Cluster, regions and their health, Secrets, IP pools and endpoint.

Only the Secrets of its credentials are read from the API; everything else comes from caches and
inventories, so a pass costs Proxmox nothing.
"""

from dataclasses import dataclass, replace

from moxwell.api.capi.core import Cluster
from moxwell.api.capi.shared import FailureDomain
from moxwell.api.infra.cluster import ProxmoxCluster, RegionHealth
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.zone_settings import generated_pools
from moxwell.api.ipam import InClusterIPPool, IPAddress, IPAddressClaim
from moxwell.controllers.infra.cluster.credentials import protected_secrets, read_credentials
from moxwell.controllers.infra.cluster.plan import (
    POOL_DELETED,
    ObservedProxmoxCluster,
    endpoint_claim,
)
from moxwell.controllers.infra.owners import owner_key
from moxwell.controllers.infra.policy import InfraPolicy
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.controllers.infra.zone_defaults import ZoneResolver, cluster_name
from moxwell.errors import MoxwellError
from moxwell.kube.reader import Reader
from moxwell.runtime import index
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key

BY_OWNER = "owner"
BY_CLUSTER = "infra.cluster"


@dataclass(frozen=True, slots=True)
class ClusterCaches:
    """The caches of the objects that a cluster consists of."""

    own: Cache[ProxmoxCluster]
    clusters: Cache[Cluster]
    machines: Cache[ProxmoxMachine]
    pools: Cache[InClusterIPPool]
    claims: Cache[IPAddressClaim]
    addresses: Cache[IPAddress]


class ClusterObserver:
    """Observes one cluster at a time."""

    def __init__(
        self,
        caches: ClusterCaches,
        zones: ZoneResolver,
        registry: RegionRegistry,
        policy: InfraPolicy,
    ) -> None:
        self._caches, self._zones, self._registry = caches, zones, registry
        self._policy = policy
        caches.pools.add_index(BY_OWNER, index.by_owner)
        caches.claims.add_index(BY_OWNER, index.by_owner)

    async def see(self, obj: ProxmoxCluster, reader: Reader) -> ObservedProxmoxCluster:
        """Everything this pass needs."""
        key = owner_key(obj, "Cluster")
        cluster = self._caches.clusters.find(key) if key else None
        seen = self._see_owned(obj, ObservedProxmoxCluster(cluster=cluster))
        if obj.deleting:
            return await self._see_deletion(obj, seen, reader)
        if cluster is None:
            return seen
        seen = await self._see_regions(obj, seen, reader)
        return self._see_endpoint(obj, seen)

    # ---- regions

    async def _see_regions(
        self, obj: ProxmoxCluster, seen: ObservedProxmoxCluster, reader: Reader
    ) -> ObservedProxmoxCluster:
        key = Key(obj.namespace, obj.name)
        seen = replace(seen, connected_regions=self._registry.added_by(key))
        try:
            own, unprotected = await read_credentials(obj, reader, self._policy)
            self._registry.check(own)
            names = self._zones.names(obj)
        except MoxwellError as error:
            return replace(seen, problem=str(error), problem_reason=error.reason)
        return replace(
            seen,
            own_regions=tuple(own),
            regions=tuple(self._health(obj, name) for name in names),
            failure_domains=self._failure_domains(obj),
            unprotected_secrets=unprotected,
        )

    async def _see_deletion(
        self, obj: ProxmoxCluster, seen: ObservedProxmoxCluster, reader: Reader
    ) -> ObservedProxmoxCluster:
        """Regions stay connected while machines exist, also after a restart."""
        key = str(Key(obj.namespace, cluster_name(obj)))
        machines = tuple(m.name for m in self._caches.machines.by(BY_CLUSTER, key))
        if machines:
            seen = await self._see_regions(obj, seen, reader)
            return replace(seen, machines=machines)
        protected = await protected_secrets(obj, self._caches.own.list(), reader, self._policy)
        in_use: dict[str, int] = {}
        for address in self._caches.addresses.list(obj.namespace):
            ref = address.spec.pool_ref
            if ref.kind == InClusterIPPool.resource.kind:
                in_use[ref.name] = in_use.get(ref.name, 0) + 1
        return replace(
            seen,
            protected_secrets=protected,
            addresses_in_use=in_use,
            waiting_claims=self._waiting_claims(obj),
        )

    def _waiting_claims(self, obj: ProxmoxCluster) -> tuple[tuple[str, str], ...]:
        """The deleted claims on pools, which the IPAM provider keeps for the grace period."""
        return tuple(
            (claim.spec.pool_ref.name, claim.name)
            for claim in self._caches.claims.list(obj.namespace)
            if claim.deleting
            and claim.spec.pool_ref.kind == InClusterIPPool.resource.kind
            and POOL_DELETED not in claim.metadata.annotations
        )

    def _health(self, obj: ProxmoxCluster, name: str) -> RegionHealth:
        region = self._zones.find(obj, name)
        if region is None:
            return RegionHealth(name=name, available=False, message="not configured")
        health, hosts = region.inventory.health, region.inventory.hosts
        return RegionHealth(
            name=name,
            available=health.reachable,
            message="" if health.reachable else region.problem,
            hosts=len(hosts),
            hosts_online=sum(h.online for h in hosts.values()) if health.reachable else 0,
        )

    def _failure_domains(self, obj: ProxmoxCluster) -> tuple[FailureDomain, ...]:
        """One per zone with a region or hosts; a zone that only has pools is none."""
        found = []
        for zone in obj.spec.zone_config:
            if not (zone.region or zone.nodes):
                continue
            attributes = {"region": self._zones.region_name(obj, zone.region or "")}
            if zone.nodes:
                attributes["hosts"] = ",".join(zone.nodes)
            allowed = True if zone.control_plane is None else zone.control_plane
            domain = FailureDomain(name=zone.zone, control_plane=allowed, attributes=attributes)
            found.append(domain)
        return tuple(sorted(found, key=lambda d: d.name))

    # ---- pools and endpoint

    def _see_owned(
        self, obj: ProxmoxCluster, seen: ObservedProxmoxCluster
    ) -> ObservedProxmoxCluster:
        owned = {p.name: p for p in self._caches.pools.by(BY_OWNER, obj.uid)}
        pools = dict(owned)
        for wanted in generated_pools(cluster_name(obj), obj.spec):
            found = self._caches.pools.find(Key(obj.namespace, wanted.name))
            if found is not None:
                pools[wanted.name] = found
        claims = self._caches.claims.by(BY_OWNER, obj.uid)
        return replace(
            seen,
            pools=pools,
            owned_pools=frozenset(owned),
            owned_claims=tuple(c.name for c in claims if not c.deleting),
        )

    def _see_endpoint(
        self, obj: ProxmoxCluster, seen: ObservedProxmoxCluster
    ) -> ObservedProxmoxCluster:
        claim = self._caches.claims.find(Key(obj.namespace, endpoint_claim(obj)))
        name = claim.status.address_ref.name if claim else ""
        address = self._caches.addresses.find(Key(obj.namespace, name)) if name else None
        return replace(
            seen,
            endpoint_claimed=claim is not None,
            endpoint_address=address.spec.address if address else "",
        )
