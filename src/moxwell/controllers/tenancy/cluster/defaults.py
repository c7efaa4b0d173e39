"""What a manifest need not say, and what is meant where it says nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from moxwell.api.cozystack import Kubernetes, NodeGroup
from moxwell.errors import Invalid

DEFAULT_GROUP = NodeGroup(name="md0", min_replicas=0, max_replicas=10, roles=("ingress-nginx",))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionDefaults:
    """Where nodes of a region get what a manifest does not say."""

    name: str
    pool: str = ""  # a GlobalInClusterIPPool; none: DHCP
    dns: tuple[str, ...] = ()
    bridge: str = "vmbr0"
    zones: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # groups of hosts

    def hosts_of(self, zone: str) -> tuple[str, ...]:
        """The hosts of a zone; one that the configuration does not name is a host."""
        return self.zones.get(zone, (zone,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a manifest need not say."""

    regions: tuple[RegionDefaults, ...]
    version: str = "v1.34.1"
    control_plane_replicas: int = 2
    data_store: str = "default"
    tenant: str = ""  # whose namespace it is; nobody's: no wall, no bridge
    firewall_group: str = ""
    bridge: str = ""


def version_of(app: Kubernetes, defaults: Defaults) -> str:
    """
    The whole version: ``v1.34`` means its patch release that runs or that we know, else ``.0``.

    What a cluster does not say stays as it runs: a newer default is for new clusters.
    """
    version = app.spec.version or app.status.version or defaults.version
    version = version if version.startswith("v") else f"v{version}"
    if version.count(".") == 1:
        known = (app.status.version, defaults.version, f"{version}.0")
        version = next(each for each in known if each.startswith(f"{version}."))
    return version


def groups_of(app: Kubernetes) -> tuple[NodeGroup, ...]:
    """The node groups; ``replicas`` of the whole counts for groups that say nothing."""
    groups = app.spec.groups
    if not groups:
        if app.spec.replicas is None:
            return (DEFAULT_GROUP,)
        return (NodeGroup(name="md0", replicas=app.spec.replicas),)
    return tuple(_counted(group, app) for group in groups)


def _counted(group: NodeGroup, app: Kubernetes) -> NodeGroup:
    if group.replicas is not None or group.max_replicas is not None:
        return group
    given = group.min_replicas if group.min_replicas is not None else app.spec.replicas
    return msgspec.structs.replace(group, replicas=1 if given is None else given)


def regions_of(app: Kubernetes, group: NodeGroup | None, defaults: Defaults) -> tuple[str, ...]:
    """Where a group may be; without a word of anybody, everywhere."""
    named = (group.regions if group else ()) or app.spec.regions
    known = tuple(r.name for r in defaults.regions)
    for name in named:
        if name not in known:
            raise Invalid(f"region {name!r} is not configured: there are {', '.join(known)}")
    return named or known


@dataclass(frozen=True, slots=True)
class Zone:
    """A failure domain of a cluster: a region, or some hosts of one for groups that name them."""

    name: str
    region: RegionDefaults
    hosts: tuple[str, ...] = ()


def zones_of(app: Kubernetes, group: NodeGroup, defaults: Defaults) -> tuple[Zone, ...]:
    """Where a group may be, as zones of its cluster."""
    names = regions_of(app, group, defaults)
    regions = [r for r in defaults.regions if r.name in names]
    if not group.zones:
        return tuple(Zone(r.name, r) for r in regions)
    found = []
    for zone in group.zones:
        grouped = [r for r in regions if zone in r.zones]
        found += [Zone(f"{r.name}-{zone}", r, r.hosts_of(zone)) for r in grouped or regions]
    return tuple(found)
