"""
Looking at a cluster's ground: its owner, its regions and their health, its pools, its endpoint.

In flows the object, out flows :class:`Seen`. Only the Secrets of its own credentials are read from
the API; everything else is in caches and inventories, so a look costs Proxmox nothing.
"""

from dataclasses import dataclass, field, replace

from moxwell.api.capi.core import Cluster
from moxwell.api.infra.cluster import (
    Endpoint,
    FailureDomain,
    ProxmoxCluster,
    RegionHealth,
    SecretRef,
)
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import InClusterIPPool, IPAddress, IPAddressClaim
from moxwell.controllers.infra.cluster.credentials import Credentials
from moxwell.controllers.infra.owners import owner_key
from moxwell.controllers.infra.region_registry import RegionBook
from moxwell.controllers.infra.zone_defaults import Grounds, cluster_name
from moxwell.errors import MoxwellError
from moxwell.pve.regions import Regions
from moxwell.runtime import index
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.move import Wait
from moxwell.scheduling.zone_settings import MadePool, made_pools

BY_OWNER = "owner"
BY_CLUSTER = "infra.cluster"
GRACE_SECONDS = 60  # before an address is given again


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything one pass saw."""

    stuck: Wait | None = None
    cluster: Cluster | None = None
    regions: tuple[RegionHealth, ...] = ()
    problem: str = ""  # why a region cannot be used at all
    problem_reason: str = ""
    domains: tuple[FailureDomain, ...] = ()
    pools: tuple[MadePool, ...] = ()
    pools_missing: tuple[MadePool, ...] = ()
    pools_unwanted: tuple[str, ...] = ()
    grace: int = GRACE_SECONDS
    endpoint: Endpoint | None = None
    endpoint_claimed: bool = False
    endpoint_given: str = ""
    secrets_loose: tuple[SecretRef, ...] = ()
    secrets_held: tuple[SecretRef, ...] = ()  # by this cluster alone; asked when it goes
    machines: tuple[str, ...] = ()
    owned_claims: tuple[str, ...] = field(default=())
    addresses_left: int = 0  # given from pools that should go


@dataclass(frozen=True, slots=True)
class Caches:
    """The objects of others that the ground depends on."""

    clusters: Cache[Cluster]
    machines: Cache[ProxmoxMachine]
    pools: Cache[InClusterIPPool]
    claims: Cache[IPAddressClaim]
    addresses: Cache[IPAddress]


class Eyes:
    """Looks at one cluster at a time."""

    def __init__(
        self,
        credentials: Credentials,
        regions: Regions,
        caches: Caches,
        grounds: Grounds,
        book: RegionBook,
    ) -> None:
        self._credentials, self._regions, self._caches = credentials, regions, caches
        self._grounds, self._book = grounds, book
        caches.pools.add_index(BY_OWNER, index.by_owner)
        caches.claims.add_index(BY_OWNER, index.by_owner)

    async def see(self, obj: ProxmoxCluster) -> Seen:
        """Everything this pass needs."""
        key = owner_key(obj, "Cluster")
        cluster = self._caches.clusters.find(key) if key else None
        seen = self._see_owned(obj, Seen(cluster=cluster))
        if obj.deleting:
            return await self._see_last(obj, seen)
        if cluster is None:
            return replace(seen, stuck=Wait("WaitingForCluster", "no Cluster owns this object yet"))
        seen = await self._see_regions(obj, seen)
        return self._see_endpoint(obj, cluster, seen)

    # ---- regions

    async def _see_regions(self, obj: ProxmoxCluster, seen: Seen) -> Seen:
        try:
            brought, loose = await self._credentials.read(obj)
            self._book.bring(Key(obj.namespace, obj.name), brought)
            names = self._grounds.names(obj)
        except MoxwellError as error:
            return replace(seen, problem=str(error), problem_reason=error.reason)
        return replace(
            seen,
            regions=tuple(self._health(obj, name) for name in names),
            domains=self._domains(obj),
            secrets_loose=loose,
        )

    async def _see_last(self, obj: ProxmoxCluster, seen: Seen) -> Seen:
        """While machines go they need the regions, also after a restart of ours."""
        machines = self._machines_of(obj)
        if machines:
            seen = await self._see_regions(obj, seen)
        held = () if machines else await self._credentials.held_for(obj)
        left = self._addresses_of(obj, seen.pools_unwanted)
        return replace(seen, machines=machines, secrets_held=held, addresses_left=left)

    def _addresses_of(self, obj: ProxmoxCluster, pools: tuple[str, ...]) -> int:
        """A pool goes after its addresses: the IPAM provider refuses any other order."""
        given = self._caches.addresses.list(obj.namespace)
        refs = [a.spec.pool_ref for a in given]
        return sum(r.kind == InClusterIPPool.resource.kind and r.name in pools for r in refs)

    def _health(self, obj: ProxmoxCluster, name: str) -> RegionHealth:
        region = self._grounds.find(obj, name)
        if region is None:
            return RegionHealth(name=name, available=False, message="not configured here")
        health, hosts = region.inventory.health, region.inventory.hosts
        return RegionHealth(
            name=name,
            available=health.reachable,
            message="" if health.reachable else health.error,
            hosts=len(hosts),
            hosts_online=sum(h.online for h in hosts.values()) if health.reachable else 0,
        )

    def _domains(self, obj: ProxmoxCluster) -> tuple[FailureDomain, ...]:
        """Zones that say where they are; a zone that only has pools is no failure domain."""
        found = []
        for zone in obj.spec.zone_config:
            if not (zone.region or zone.nodes):
                continue
            attributes = {"region": self._grounds.region_name(obj, zone.region or "")}
            if zone.nodes:
                attributes["hosts"] = ",".join(zone.nodes)
            wanted = True if zone.control_plane is None else zone.control_plane
            found.append(FailureDomain(name=zone.zone, control_plane=wanted, attributes=attributes))
        return tuple(sorted(found, key=lambda d: d.name))

    # ---- pools and endpoint

    def _see_owned(self, obj: ProxmoxCluster, seen: Seen) -> Seen:
        wanted = made_pools(cluster_name(obj), obj.spec)
        names = {p.name for p in wanted}
        owned = self._caches.pools.by(BY_OWNER, obj.uid)
        leaving = obj.deleting or (seen.cluster is not None and seen.cluster.deleting)
        missing = [p for p in wanted if not self._has(obj, p, leaving=leaving)]
        return replace(
            seen,
            grace=0 if leaving else GRACE_SECONDS,
            pools=wanted,
            pools_missing=tuple(missing),
            pools_unwanted=tuple(
                p.name for p in owned if not p.deleting and (p.name not in names or obj.deleting)
            ),
            owned_claims=tuple(
                c.name for c in self._caches.claims.by(BY_OWNER, obj.uid) if not c.deleting
            ),
        )

    def _has(self, obj: ProxmoxCluster, pool: MadePool, *, leaving: bool) -> bool:
        """Nobody will be given an address of a pool that goes, so none needs to rest there."""
        found = self._caches.pools.find(Key(obj.namespace, pool.name))
        if found is None or (leaving and found.spec.address_reuse_grace_period_seconds):
            return False
        spec, config = found.spec, pool.config
        same = (tuple(spec.addresses), spec.prefix, spec.gateway)
        return same == (tuple(config.addresses), config.prefix, config.gateway)

    def _see_endpoint(self, obj: ProxmoxCluster, cluster: Cluster, seen: Seen) -> Seen:
        own, theirs = obj.spec.control_plane_endpoint, cluster.spec.control_plane_endpoint
        if own and own.host:
            return replace(seen, endpoint=own)
        if theirs.host:
            return replace(seen, endpoint=Endpoint(host=theirs.host, port=theirs.port))
        name = endpoint_claim(obj)
        claim = self._caches.claims.find(Key(obj.namespace, name))
        ref = claim.status.address_ref.name if claim else ""
        found = self._caches.addresses.find(Key(obj.namespace, ref)) if ref else None
        return replace(
            seen,
            endpoint_claimed=claim is not None,
            endpoint_given=found.spec.address if found else "",
        )

    def _machines_of(self, obj: ProxmoxCluster) -> tuple[str, ...]:
        key = str(Key(obj.namespace, cluster_name(obj)))
        return tuple(m.name for m in self._caches.machines.by(BY_CLUSTER, key))


def endpoint_claim(obj: ProxmoxCluster) -> str:
    """The name of the claim for a control-plane endpoint."""
    return f"{cluster_name(obj)}-endpoint"
