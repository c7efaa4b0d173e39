"""From a KamajiControlPlane and its Cluster to a TenantControlPlane, and back to a status: pure."""

from collections.abc import Mapping
from typing import Any

from moxwell.api.capi.controlplane import (
    ControlPlaneStatus,
    KamajiControlPlane,
    PlaneInitialization,
)
from moxwell.api.capi.core import Cluster
from moxwell.api.capi.shared import CLUSTER_NAME, SECRET_TYPE, Endpoint
from moxwell.api.conditions import Condition
from moxwell.api.kamaji import TenantControlPlane
from moxwell.api.kinds import own

Json = dict[str, Any]
DEFAULT_REPLICAS = 2


def wanted(plane: KamajiControlPlane, cluster: Cluster) -> Json:
    """The TenantControlPlane, as a tree to be applied: only what we have a say in."""
    net, inside = plane.spec.network, cluster.spec.cluster_network
    given = plane.spec.control_plane_endpoint or cluster.spec.control_plane_endpoint
    profile: Json = {
        "port": given.port or inside.api_server_port or 6443,
        "certSANs": list(net.cert_sans),
    }
    if address := net.service_address or given.host:
        profile["address"] = address
    if inside.services.cidr_blocks:
        profile["serviceCidr"] = inside.services.cidr_blocks[0]
    if inside.pods.cidr_blocks:
        profile["podCidr"] = inside.pods.cidr_blocks[0]
    if inside.service_domain:
        profile["clusterDomain"] = inside.service_domain
    replicas = DEFAULT_REPLICAS if plane.spec.replicas is None else plane.spec.replicas
    return {
        "dataStore": plane.spec.data_store_name,
        "kubernetes": {"version": plane.spec.version},
        "networkProfile": profile,
        "controlPlane": {"deployment": {"replicas": replicas}},
        "addons": dict(plane.spec.addons),
    }


def endpoint(tenant: TenantControlPlane) -> Endpoint | None:
    """Where the tenant's API answers, once it does."""
    host, _, port = tenant.status.control_plane_endpoint.rpartition(":")
    return Endpoint(host=host, port=int(port)) if host and port.isdigit() else None


def cluster_secrets(
    plane: KamajiControlPlane, cluster: str, admin: Mapping[str, str], authority: Mapping[str, str]
) -> tuple[Json, ...]:
    """The two Secrets of Cluster API's contract; data is in base64 already."""
    config = {"value": admin.get("admin.conf", "")}
    certificate = {"tls.crt": authority.get("ca.crt", ""), "tls.key": authority.get("ca.key", "")}
    rows = ((f"{cluster}-kubeconfig", config), (f"{cluster}-ca", certificate))
    return tuple(_secret(plane, cluster, name, data) for name, data in rows)


def _secret(plane: KamajiControlPlane, cluster: str, name: str, data: Mapping[str, str]) -> Json:
    mine = own(plane)
    reference = {
        "apiVersion": mine.api_version,
        "kind": mine.kind,
        "name": mine.name,
        "uid": mine.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    meta = {
        "name": name,
        "namespace": plane.namespace,
        "labels": {CLUSTER_NAME: cluster},
        "ownerReferences": [reference],
    }
    head = {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
    return head | {"type": SECRET_TYPE, "data": dict(data)}


def _complaint(tenant: TenantControlPlane | None) -> str:
    """What the host of the control plane is not content with."""
    said = tenant.status.conditions if tenant else ()
    return next((c.message for c in said if c.type == "Ready" and c.status != "True"), "")


def describe(plane: KamajiControlPlane, tenant: TenantControlPlane | None) -> ControlPlaneStatus:
    """The status, from scratch; a plane that was up once stays initialised."""
    seen = tenant.status.kubernetes_resources if tenant else None
    phase = seen.version.status if seen else ""
    up = phase in {"Ready", "Upgrading"}
    known = plane.status.initialization.control_plane_initialized
    counts = seen.deployment if seen else None
    said = Condition(
        type="Available",
        status="True" if up else "False",
        reason=phase or "Provisioning",
        message=_complaint(tenant),
    )
    return ControlPlaneStatus(
        conditions=(said,),
        initialization=PlaneInitialization(control_plane_initialized=up or known),
        ready=up,
        external_managed_control_plane=True,
        replicas=counts.replicas if counts else 0,
        ready_replicas=counts.ready_replicas if counts else 0,
        available_replicas=counts.available_replicas if counts else 0,
        up_to_date_replicas=counts.updated_replicas if counts else 0,
        version=seen.version.version if seen else "",
        observed_generation=plane.metadata.generation,
    )
