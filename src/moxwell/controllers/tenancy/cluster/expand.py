"""
What a ``Kubernetes`` object stands for: pure, and the only place where these names are made.

Out flow whole objects as trees, in the order in which they are made.
"""

from typing import Any

import msgspec

from moxwell.api.cozystack import Kubernetes, NodeGroup
from moxwell.api.infra.machine import GROUP as INFRA
from moxwell.api.infra.machine import HUB
from moxwell.controllers.tenancy.cluster.defaults import (
    Defaults,
    RegionDefaults,
    regions_of,
    version_of,
)
from moxwell.controllers.tenancy.cluster.forms import CONTROL_PLANE, CORE, new_object, owned, ref
from moxwell.controllers.tenancy.cluster.groups import group_objects

Json = dict[str, Any]
DEFAULT_GROUP = NodeGroup(name="md0", min_replicas=0, max_replicas=10, roles=("ingress-nginx",))


def expand(app: Kubernetes, defaults: Defaults) -> tuple[Json, ...]:
    """Every object that should be there, in the order they are made."""
    groups = groups_of(app)
    objects = [infrastructure(app, defaults), control_plane(app, defaults), cluster(app)]
    for group in groups:
        objects += group_objects(app, group, defaults)
    return tuple(owned(app, obj) for obj in objects)


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


# The cluster itself


def cluster(app: Kubernetes) -> Json:
    """Cluster API's Cluster."""
    spec = {
        "clusterNetwork": {
            "services": {"cidrBlocks": ["10.96.0.0/16"]},
            "pods": {"cidrBlocks": ["10.244.0.0/16"]},
            "serviceDomain": "cluster.local",
        },
        "controlPlaneRef": ref(CONTROL_PLANE, "KamajiControlPlane", app.name),
        "infrastructureRef": ref(INFRA, "ProxmoxCluster", app.name),
    }
    return new_object(app, CORE, "Cluster", app.name, spec)


def control_plane(app: Kubernetes, defaults: Defaults) -> Json:
    """The hosted control plane."""
    given = app.spec.control_plane.replicas
    spec: Json = {
        "version": version_of(app, defaults),
        "replicas": defaults.control_plane_replicas if given is None else given,
        "dataStoreName": app.spec.control_plane.data_store or defaults.data_store,
        "addons": {"coreDNS": {}, "kubeProxy": {}},
        "network": {"serviceType": "LoadBalancer"},
        "kubelet": {"preferredAddressTypes": ["InternalIP", "ExternalIP", "Hostname"]},
    }
    if app.spec.host:
        spec["network"]["certSANs"] = [app.spec.host]
    return new_object(app, f"{CONTROL_PLANE}/v1alpha2", "KamajiControlPlane", app.name, spec)


def infrastructure(app: Kubernetes, defaults: Defaults) -> Json:
    """The ground: one zone for each region, with its own addresses."""
    used = {r for g in groups_of(app) for r in regions_of(app, g, defaults)}
    rows = [r for r in defaults.regions if r.name in used]
    spec: Json = {"externalManagedControlPlane": True, "providerIDFormat": "RegionVMID"}
    spec["zoneConfig"] = [_zone(app, r) for r in rows]
    if app.spec.network.dns_servers:
        spec["dnsServers"] = list(app.spec.network.dns_servers)
    if app.spec.credentials_ref is not None:
        ref = msgspec.to_builtins(app.spec.credentials_ref)
        spec["regions"] = [{"name": r.name, "credentialsRef": ref} for r in rows]
    return new_object(app, f"{INFRA}/{HUB}", "ProxmoxCluster", app.name, spec)


def _zone(app: Kubernetes, region: RegionDefaults) -> Json:
    zone: Json = {"zone": region.name, "region": region.name, "bridge": region.bridge}
    net = app.spec.network
    if net.addresses:
        zone["ipv4Config"] = {
            "addresses": list(net.addresses),
            "prefix": net.prefix or 24,
            "gateway": net.gateway,
        }
    elif pool := net.pool or region.pool:
        kind = "InClusterIPPool" if net.pool else "GlobalInClusterIPPool"
        zone["ipPoolRef"] = [{"kind": kind, "name": pool}]
    if region.dns:
        zone["dnsServers"] = list(region.dns)
    return zone
