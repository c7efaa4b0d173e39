"""
The settings of a zone: those of the zone, else those of the ProxmoxCluster. Pure.

Also the names of the IP pools that a cluster generates; they are CAPMOX's, so that its clusters
keep their addresses.
"""

from dataclasses import dataclass

from moxwell.api.infra.cluster import ProxmoxClusterSpec, TemplateSource, ZoneConfig
from moxwell.api.infra.network import IPConfig, PoolRef
from moxwell.errors import Missing

IPAM = "ipam.cluster.x-k8s.io"
METRIC = 100


class ZoneNotFound(Missing):
    """The cluster has no such failure domain."""

    reason = "FailureDomainNotFound"


@dataclass(frozen=True, slots=True)
class DefaultPool:
    """A pool for the default device; family 0 means that the address decides."""

    ref: PoolRef
    family: int = 0
    metric: int | None = METRIC


@dataclass(frozen=True, slots=True)
class GeneratedPool:
    """A pool that the cluster generates for the in-cluster IPAM provider."""

    name: str
    zone: str
    family: int
    config: IPConfig


@dataclass(frozen=True, slots=True)
class ZoneSettings:
    """The effective settings of one zone."""

    zone: str = ""
    region: str = ""
    nodes: frozenset[str] = frozenset()
    storage: str = ""
    iso_storage: str = ""
    bridge: str = ""
    vlan: int | None = None
    pools: tuple[DefaultPool, ...] = ()
    dns: tuple[str, ...] = ()
    template: TemplateSource | None = None


def zone_settings_of(cluster: str, spec: ProxmoxClusterSpec, zone: str = "") -> ZoneSettings:
    """The settings of a zone; the empty name means the cluster without zones."""
    found = next((z for z in spec.zone_config if z.zone == zone), None)
    if zone and found is None and zone != "default":
        raise ZoneNotFound(f"the cluster has no zone {zone!r}; {_zones(spec)}")
    config = found or ZoneConfig(zone="default")
    return ZoneSettings(
        zone=found.zone if found else "",
        region=config.region or spec.region or "",
        nodes=frozenset(config.nodes),
        storage=config.storage or "",
        iso_storage=config.iso_storage or "",
        bridge=config.bridge or "",
        vlan=config.vlan,
        pools=_pools(cluster, spec, found),
        dns=config.dns_servers or spec.dns_servers,
        template=config.template,
    )


def generated_pools(cluster: str, spec: ProxmoxClusterSpec) -> tuple[GeneratedPool, ...]:
    """Every pool that a cluster generates, for itself and for its zones, by name."""
    pools = [*_made(cluster, "", spec.ipv4_config, spec.ipv6_config)]
    for zone in spec.zone_config:
        pools += _made(cluster, zone.zone, zone.ipv4_config, zone.ipv6_config)
    return tuple(sorted(pools, key=lambda p: p.name))


def _made(
    cluster: str, zone: str, four: IPConfig | None, six: IPConfig | None
) -> tuple[GeneratedPool, ...]:
    stem = f"{cluster}-{zone}" if zone and zone != "default" else cluster
    both = ((4, four), (6, six))
    return tuple(
        GeneratedPool(f"{stem}-v{family}-icip", zone or "default", family, config)
        for family, config in both
        if config is not None
    )


def _pools(
    cluster: str, spec: ProxmoxClusterSpec, zone: ZoneConfig | None
) -> tuple[DefaultPool, ...]:
    if zone and (zone.ip_pool_ref or zone.ipv4_config or zone.ipv6_config):
        named, made = (
            zone.ip_pool_ref,
            _made(cluster, zone.zone, zone.ipv4_config, zone.ipv6_config),
        )
    else:
        named, made = spec.ip_pool_ref, _made(cluster, "", spec.ipv4_config, spec.ipv6_config)
    ours = tuple(
        DefaultPool(
            PoolRef(api_group=IPAM, kind="InClusterIPPool", name=pool.name),
            pool.family,
            METRIC if pool.config.metric is None else pool.config.metric,
        )
        for pool in made
    )
    return tuple(DefaultPool(ref) for ref in named) + ours


def _zones(spec: ProxmoxClusterSpec) -> str:
    names = [z.zone for z in spec.zone_config]
    return f"it has {', '.join(names)}" if names else "it has none"
