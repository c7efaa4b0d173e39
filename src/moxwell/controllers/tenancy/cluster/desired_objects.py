"""
The Cluster API objects of one ``Kubernetes`` object. Pure.

Objects are dicts, in the order in which they are created.
"""

from typing import Any

import msgspec

from moxwell.api.cozystack import Kubernetes
from moxwell.api.infra.machine import GROUP as INFRA
from moxwell.api.infra.machine import HUB
from moxwell.controllers.tenancy.cluster.defaults import (
    ClusterZone,
    Defaults,
    groups_of,
    regions_of,
    version_of,
    zones_of,
)
from moxwell.controllers.tenancy.cluster.naming import CONTROL_PLANE, CORE, new_object, owned, ref
from moxwell.controllers.tenancy.cluster.node_groups import group_objects
from moxwell.controllers.tenancy.cluster.upgrades import control_plane_version
from moxwell.errors import Invalid

Json = dict[str, Any]
IPAM = "ipam.cluster.x-k8s.io"


def expand(app: Kubernetes, defaults: Defaults) -> tuple[Json, ...]:
    """Every desired object, in the order of creation."""
    return tuple(obj for stage in stages(app, defaults) for obj in stage)


def stages(app: Kubernetes, defaults: Defaults) -> tuple[tuple[Json, ...], ...]:
    """The same by stage: the objects of the whole cluster, then those of each node group."""
    shared = [infrastructure(app, defaults), control_plane(app, defaults), cluster(app)]
    rows = [shared, *(list(group_objects(app, g, defaults)) for g in groups_of(app))]
    return tuple(tuple(owned(app, obj) for obj in row) for row in rows)


# The cluster itself


def cluster(app: Kubernetes) -> Json:
    """The Cluster."""
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
    """The KamajiControlPlane."""
    given = app.spec.control_plane.replicas
    spec: Json = {
        "version": control_plane_version(defaults.running_version, version_of(app, defaults)),
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
    """The ProxmoxCluster: one zone for each failure domain, with its own addresses."""
    zones = {z.name: z for g in groups_of(app) for z in zones_of(app, g, defaults)}
    order = {r.name: number for number, r in enumerate(defaults.regions)}
    used = sorted(zones.values(), key=lambda z: (order[z.region.name], bool(z.hosts), z.name))
    rows = list({z.region.name: z.region for z in used}.values())
    spec: Json = {"externalManagedControlPlane": True, "providerIDFormat": "RegionVMID"}
    alone = len(used) == 1  # zones that share addresses would allocate each address twice
    home = regions_of(app, None, defaults)
    spec["zoneConfig"] = [_zone(app, z, alone, home, defaults.ip_pool) for z in used]
    if app.spec.network.addresses and not alone:
        spec["ipv4Config"] = _addresses(app)
    if app.spec.network.dns_servers:
        spec["dnsServers"] = list(app.spec.network.dns_servers)
    if app.spec.credentials_ref is not None:
        _check_credentials(app, defaults)
        ref = msgspec.to_builtins(app.spec.credentials_ref)
        spec["regions"] = [{"name": r.name, "credentialsRef": ref} for r in rows]
    return new_object(app, f"{INFRA}/{HUB}", "ProxmoxCluster", app.name, spec)


def _check_credentials(app: Kubernetes, defaults: Defaults) -> None:
    """A tenant must not use credentials of another namespace."""
    ref = app.spec.credentials_ref
    space = ref.namespace if ref else ""
    if defaults.tenant and space not in ("", app.namespace):
        raise Invalid(
            f"spec.credentialsRef names namespace {space}: "
            "a tenant may only use Secrets of its own namespace"
        )


def _addresses(app: Kubernetes) -> Json:
    net = app.spec.network
    given = {"addresses": list(net.addresses), "prefix": net.prefix or 24}
    return {**given, "gateway": net.gateway}


def _zone(
    app: Kubernetes, place: ClusterZone, alone: bool, home: tuple[str, ...], ip_pool: str
) -> Json:
    region, net = place.region, app.spec.network
    zone: Json = {"zone": place.name, "region": region.name, "bridge": region.bridge}
    if place.hosts:
        zone["nodes"] = list(place.hosts)
    if place.name not in home:  # only groups that name it use it
        zone["onRequest"] = True
    if net.addresses:
        zone |= {"ipv4Config": _addresses(app)} if alone else {}
    elif pool := net.pool or ip_pool or region.pool:
        own = net.pool or ip_pool
        kind = "InClusterIPPool" if own else "GlobalInClusterIPPool"
        zone["ipPoolRef"] = [ref(IPAM, kind, pool)]  # as the API server would default it
    if region.dns:
        zone["dnsServers"] = list(region.dns)
    return zone
