"""
Which regions and zones a cluster stands on.

In flows a ProxmoxCluster, out flow its zones with the region of each. A region is named by the
zone, by the cluster, by its ``server`` or by its credentials; where nothing names one and exactly
one is configured, that one is meant. Two configured and none named is a mistake, never a choice.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.controllers.infra.region_registry import RegionBook
from moxwell.errors import Invalid, Missing
from moxwell.pve.regions import Region, Regions
from moxwell.runtime.key import Key
from moxwell.scheduling.zone_settings import Ground, ground_of


class RegionNotNamed(Invalid):
    """Several regions are configured and the cluster names none."""

    reason = "RegionNotNamed"


class ServerUnknown(Missing):
    """No configured region has that address."""

    reason = "ServerUnknown"


def region_of_secret(namespace: str, name: str) -> str:
    """The name of the region behind ``credentialsRef``, where the cluster gives none."""
    return f"{namespace}.{name}"[:63].rstrip("-._")


class Grounds:
    """Finds the regions of clusters; one that a cluster brought is for nobody else."""

    def __init__(self, regions: Regions, book: RegionBook) -> None:
        self._regions, self._book = regions, book

    def region_name(self, cluster: ProxmoxCluster, zone_region: str = "") -> str:
        """The region of a zone, or of a cluster without zones."""
        spec = cluster.spec
        if zone_region or spec.region:
            return zone_region or spec.region or ""
        if spec.credentials_ref:
            ref = spec.credentials_ref
            return region_of_secret(ref.namespace or cluster.namespace, ref.name)
        if spec.server:
            return self._by_server(spec.server)
        shared = sorted(self._book.shared)
        if len(shared) == 1:
            return shared[0]
        raise RegionNotNamed(
            f"the cluster names no region and {len(shared)} are configured "
            f"({', '.join(shared) or 'none'}); "
            "set spec.region, spec.credentialsRef or a region for each zone"
        )

    def find(self, cluster: ProxmoxCluster, name: str) -> Region | None:
        """A region, if this cluster may use it."""
        key = Key(cluster.namespace, cluster.name)
        return self._regions.find(name) if self._book.may_use(key, name) else None

    def names(self, cluster: ProxmoxCluster) -> tuple[str, ...]:
        """All regions a cluster needs, sorted."""
        zones = cluster.spec.zone_config
        if not zones:
            return (self.region_name(cluster),)
        return tuple(sorted({self.region_name(cluster, z.region or "") for z in zones}))

    def zones(
        self, cluster: ProxmoxCluster, wanted: str = "", among: tuple[str, ...] = ()
    ) -> tuple[Mapping[str, tuple[Region, Ground]], str]:
        """The zones that answer, with their regions; and why the others do not."""
        name = cluster_name(cluster)
        spec = cluster.spec
        names = [z.zone for z in spec.zone_config if not z.on_request] or [""]
        if spec.zone_config and (wanted or among):
            names = [wanted] if wanted else list(among)
        found: dict[str, tuple[Region, Ground]] = {}
        down: list[str] = []
        for zone in names:
            ground = ground_of(name, spec, zone)
            called = self.region_name(cluster, ground.region)
            region = self.find(cluster, called)
            if region is None:
                down.append(f"region {called!r} is not configured here")
            elif not region.inventory.health.reachable:
                down.append(f"region {called} does not answer: {region.inventory.health.error}")
            else:
                found[zone] = (region, ground)
        return found, "; ".join(dict.fromkeys(down))

    def _by_server(self, server: str) -> str:
        wanted = server.partition("://")[2] or server
        wanted = wanted.partition("/")[0]
        shared = [r for r in self._regions.values() if r.name in self._book.shared]
        for region in shared:
            for url in region.config.urls:
                parts = urlsplit(url)
                if wanted in (parts.hostname, parts.netloc):
                    return region.name
        known = sorted({urlsplit(u).netloc for r in shared for u in r.config.urls})
        raise ServerUnknown(
            f"no configured region has the server {server!r}; "
            f"known are {', '.join(known) or 'none'}"
        )


def cluster_name(cluster: ProxmoxCluster) -> str:
    """The Cluster's name, after which pools are called; its own where it has no owner."""
    for owner in cluster.metadata.owner_references:
        if owner.kind == "Cluster":
            return owner.name
    return cluster.name
