"""
Defaults of a tenant cluster: version, regions, zones, replica counts and addresses. Pure.

They come from the configuration of the regions and from the tenant's namespace.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from moxwell.api.cozystack import Kubernetes, NodeGroup
from moxwell.errors import Invalid

DEFAULT_GROUP = NodeGroup(name="md0", min_replicas=0, max_replicas=10, roles=("ingress-nginx",))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionDefaults:
    """Defaults of the nodes of a region."""

    name: str
    pool: str = ""  # a GlobalInClusterIPPool; none: DHCP
    dns: tuple[str, ...] = ()
    bridge: str = "vmbr0"
    resource_pool: str = ""  # the Proxmox pool that guests must be in
    zones: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # zone -> hosts

    def hosts_of(self, zone: str) -> tuple[str, ...]:
        """The hosts of a zone; a name that is no configured zone is the name of a host."""
        return self.zones.get(zone, (zone,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Defaults of a ``Kubernetes`` object."""

    regions: tuple[RegionDefaults, ...]
    version: str = "v1.34.1"
    control_plane_replicas: int = 2
    data_store: str = "default"
    running_version: str = ""  # of the existing control plane
    tenant: str = ""  # the tenant of the namespace; the next ones are the tenant's
    firewall_group: str = ""
    bridge: str = ""
    vlan: int | None = None
    pool: str = ""  # of Proxmox
    ip_pool: str = ""  # an InClusterIPPool
    isolated: bool = False  # no node group may name another bridge or VLAN


def version_of(app: Kubernetes, defaults: Defaults) -> str:
    """
    The full version: ``v1.34`` means the patch release that runs, else the default's, else ``.0``.

    A cluster without ``spec.version`` keeps the version it runs when the default changes.
    """
    version = app.spec.version or defaults.running_version or defaults.version
    version = version if version.startswith("v") else f"v{version}"
    if version.count(".") == 1:
        known = (defaults.running_version, defaults.version, f"{version}.0")
        version = next(each for each in known if each.startswith(f"{version}."))
    return version


def groups_of(app: Kubernetes) -> tuple[NodeGroup, ...]:
    """The node groups; ``spec.replicas`` of the cluster is the default of each group."""
    groups = app.spec.groups
    if not groups:
        if app.spec.replicas is None:
            return (DEFAULT_GROUP,)
        return (NodeGroup(name="md0", replicas=app.spec.replicas),)
    return tuple(_with_replicas(group, app) for group in groups)


def written_groups(app: Kubernetes) -> Any:
    """The node groups as the spec has them, a list or a map; the default one if it has none."""
    if app.spec.groups:
        return app.spec.node_groups
    given = msgspec.json.decode(msgspec.json.encode(groups_of(app)))
    return [{key: value for key, value in group.items() if value != {}} for group in given]


def _with_replicas(group: NodeGroup, app: Kubernetes) -> NodeGroup:
    if group.replicas is not None or group.max_replicas is not None:
        return group
    given = group.min_replicas if group.min_replicas is not None else app.spec.replicas
    return msgspec.structs.replace(group, replicas=1 if given is None else given)


def regions_of(app: Kubernetes, group: NodeGroup | None, defaults: Defaults) -> tuple[str, ...]:
    """The regions of a group: its own, else those of the cluster, else all configured ones."""
    named = (group.regions if group else ()) or app.spec.regions
    known = tuple(r.name for r in defaults.regions)
    for name in named:
        if name not in known:
            raise Invalid(f"region {name!r} is not configured; known regions: {', '.join(known)}")
    return named or known


@dataclass(frozen=True, slots=True)
class ClusterZone:
    """A failure domain of a cluster: a region, or the hosts of a zone of a region."""

    name: str
    region: RegionDefaults
    hosts: tuple[str, ...] = ()


def zones_of(app: Kubernetes, group: NodeGroup, defaults: Defaults) -> tuple[ClusterZone, ...]:
    """The failure domains that a group may use."""
    names = regions_of(app, group, defaults)
    regions = [r for r in defaults.regions if r.name in names]
    if not group.zones:
        return tuple(ClusterZone(r.name, r) for r in regions)
    found = []
    for zone in group.zones:
        grouped = [r for r in regions if zone in r.zones]
        found += [ClusterZone(f"{r.name}-{zone}", r, r.hosts_of(zone)) for r in grouped or regions]
    return tuple(found)
