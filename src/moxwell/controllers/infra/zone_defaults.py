"""
Resolves the regions and zones of a ProxmoxCluster.

A region is named by the zone, by the cluster, by its ``server`` or by its credentials. If nothing
names one and exactly one is configured, that one is used; with several configured it is an error.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.zone_settings import ZoneSettings, zone_settings_of
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.errors import Invalid, Missing
from moxwell.pve.regions import Region, Regions
from moxwell.runtime.key import Key


class RegionNotNamed(Invalid):
    """Several regions are configured and the cluster names none."""

    reason = "RegionNotNamed"


class ServerUnknown(Missing):
    """No configured region has the address in ``spec.server``."""

    reason = "ServerUnknown"


def region_of_secret(namespace: str, name: str) -> str:
    """The name of the region of a ``credentialsRef`` if the cluster names none."""
    return f"{namespace}.{name}"[:63].rstrip("-._")


class ZoneResolver:
    """Finds the regions of clusters; a region that a cluster added is visible to it alone."""

    def __init__(self, regions: Regions, registry: RegionRegistry) -> None:
        self._regions, self._registry = regions, registry

    def region_name(self, cluster: ProxmoxCluster, zone_region: str = "") -> str:
        """The name of the region of a zone, or of a cluster without zones."""
        spec = cluster.spec
        if zone_region or spec.region:
            return zone_region or spec.region or ""
        if spec.credentials_ref:
            ref = spec.credentials_ref
            return region_of_secret(ref.namespace or cluster.namespace, ref.name)
        if spec.server:
            return self._by_server(spec.server)
        shared = sorted(self._registry.shared)
        if len(shared) == 1:
            return shared[0]
        raise RegionNotNamed(
            f"the cluster names no region and {len(shared)} are configured "
            f"({', '.join(shared) or 'none'}); "
            "set spec.region, spec.credentialsRef or a region for each zone"
        )

    def find(self, cluster: ProxmoxCluster, name: str) -> Region | None:
        """The region, if it exists and this cluster may use it."""
        return self._registry.scope(Key(cluster.namespace, cluster.name)).find(name)

    def names(self, cluster: ProxmoxCluster) -> tuple[str, ...]:
        """The names of all regions of a cluster, sorted."""
        zones = cluster.spec.zone_config
        if not zones:
            return (self.region_name(cluster),)
        return tuple(sorted({self.region_name(cluster, z.region or "") for z in zones}))

    def zones(
        self, cluster: ProxmoxCluster, wanted: str = "", among: tuple[str, ...] = ()
    ) -> tuple[Mapping[str, tuple[Region, ZoneSettings]], str]:
        """The zones whose regions are reachable, and a message about the others."""
        name = cluster_name(cluster)
        spec = cluster.spec
        names = [z.zone for z in spec.zone_config if not z.on_request] or [""]
        if spec.zone_config and (wanted or among):
            names = [wanted] if wanted else list(among)
        found: dict[str, tuple[Region, ZoneSettings]] = {}
        unreachable: list[str] = []
        for zone in names:
            settings = zone_settings_of(name, spec, zone)
            region_name = self.region_name(cluster, settings.region)
            region = self.find(cluster, region_name)
            if region is None:
                unreachable.append(f"region {region_name!r} is not configured")
            elif not region.inventory.health.reachable:
                unreachable.append(f"region {region_name} does not answer: {region.problem}")
            else:
                found[zone] = (region, settings)
        return found, "; ".join(dict.fromkeys(unreachable))

    def _by_server(self, server: str) -> str:
        wanted = server.partition("://")[2] or server
        wanted = wanted.partition("/")[0]
        shared = self._regions.values()
        for region in shared:
            for url in region.config.urls:
                parts = urlsplit(url)
                if wanted in (parts.hostname, parts.netloc):
                    return region.name
        known = sorted({urlsplit(u).netloc for r in shared for u in r.config.urls})
        raise ServerUnknown(
            f"no configured region has the server {server!r}; "
            f"configured servers: {', '.join(known) or 'none'}"
        )


def cluster_name(cluster: ProxmoxCluster) -> str:
    """The name of the owning Cluster, used in pool names; its own name without an owner."""
    for owner in cluster.metadata.owner_references:
        if owner.kind == "Cluster":
            return owner.name
    return cluster.name
