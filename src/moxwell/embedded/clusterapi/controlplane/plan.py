"""
The next move and the status of a KamajiControlPlane. Pure.

The hosted control plane is a TenantControlPlane of the same name. When it is ready its credentials
are copied into the two Secrets of the Cluster API contract; that the kubeconfig Secret exists also
records that the control plane has been initialized once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from moxwell.api.capi.controlplane import (
    ControlPlaneInitialization,
    ControlPlaneStatus,
    KamajiControlPlane,
)
from moxwell.api.capi.core import Cluster
from moxwell.api.capi.shared import CLUSTER_NAME, SECRET_TYPE, APIEndpoint
from moxwell.api.conditions import Condition
from moxwell.api.json_merge import apply_merge_patch
from moxwell.api.kamaji import ADDONS_READY, TenantControlPlane
from moxwell.api.kinds import owner_reference
from moxwell.embedded.clusterapi.secrets import secret_write
from moxwell.embedded.writing import WriteMove
from moxwell.errors import Invalid
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.unstructured import Unstructured
from moxwell.runtime.writes import Create, Delete, Merge, Write, Writes

Json = dict[str, Any]
Secrets = Mapping[str, Json | None]
DEFAULT_REPLICAS = 2
DEFAULT_SERVICE_TYPE = "LoadBalancer"
POLL_SECONDS = 3.0


class KamajiControlPlaneReason(StrEnum):
    """Reasons of the moves and, where the hosted control plane has no phase, of ``Available``."""

    PROVISIONING = "Provisioning"
    WAITING_FOR_CLUSTER = "WaitingForCluster"
    WAITING_FOR_CONTROL_PLANE = "WaitingForTenantControlPlane"
    DELETING = "WaitingForTenantControlPlaneDeletion"


@dataclass(frozen=True, slots=True)
class ObservedKamajiControlPlane:
    """``tenant`` is the TenantControlPlane as stored; ``secrets`` are found Secrets by name."""

    tenant: Json | None = None
    cluster: Cluster | None = None
    infrastructure: Unstructured | None = None
    secrets: Secrets = field(default_factory=dict, repr=False)

    @property
    def hosted(self) -> TenantControlPlane | None:
        return msgspec.convert(self.tenant, TenantControlPlane) if self.tenant else None

    @property
    def was_initialized(self) -> bool:
        return self.cluster is not None and bool(self.secrets.get(kubeconfig_name(self.cluster)))


def kubeconfig_name(cluster: Cluster) -> str:
    return f"{cluster.name}-kubeconfig"


def secret_names(control_plane: KamajiControlPlane, cluster: Cluster) -> tuple[str, ...]:
    """The Secrets to read: Kamaji's two, then the two of the Cluster API contract."""
    return (
        f"{control_plane.name}-admin-kubeconfig",
        f"{control_plane.name}-ca",
        kubeconfig_name(cluster),
        f"{cluster.name}-ca",
    )


def next_move(control_plane: KamajiControlPlane, seen: ObservedKamajiControlPlane) -> WriteMove:
    """Keep the TenantControlPlane as specified, and hand over its endpoint and credentials."""
    hosted = seen.hosted
    if control_plane.deleting:
        return _deletion(hosted)
    if seen.cluster is None:
        message = "no Cluster owns this control plane yet"
        return Wait(KamajiControlPlaneReason.WAITING_FOR_CLUSTER, message, POLL_SECONDS)
    writes = _tenant_writes(control_plane, seen.cluster, seen.tenant)
    ready = hosted is not None and is_up(hosted)
    endpoint = tenant_endpoint(hosted) if hosted is not None and ready else None
    if endpoint is not None:
        writes += _handover(control_plane, seen.cluster, seen, endpoint)
    if writes:
        return Writes(tuple(writes))
    if not ready:
        reason = KamajiControlPlaneReason.WAITING_FOR_CONTROL_PLANE
        return Wait(reason, requeue_after=POLL_SECONDS)
    return Done()


def _deletion(hosted: TenantControlPlane | None) -> WriteMove:
    if hosted is None:
        return Done()
    if hosted.deleting:
        return Wait(KamajiControlPlaneReason.DELETING, requeue_after=POLL_SECONDS)
    delete = Delete(TenantControlPlane, hosted.name, hosted.namespace, uid=hosted.uid)
    return Writes((delete,), KamajiControlPlaneReason.DELETING, POLL_SECONDS)


def _tenant_writes(
    control_plane: KamajiControlPlane, cluster: Cluster, tenant: Json | None
) -> list[Write]:
    spec, resource = tenant_spec(control_plane, cluster), TenantControlPlane.resource
    name, namespace = control_plane.name, control_plane.namespace
    if tenant is not None:
        if apply_merge_patch(tenant["spec"], spec) == tenant["spec"]:
            return []
        return [Merge(TenantControlPlane, name, {"spec": spec}, namespace)]
    owners = [msgspec.to_builtins(owner_reference(control_plane))]
    meta = {"name": name, "namespace": namespace, "ownerReferences": owners}
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
    return [Create(head | {"spec": spec}, resource)]


def _handover(
    control_plane: KamajiControlPlane,
    cluster: Cluster,
    seen: ObservedKamajiControlPlane,
    endpoint: APIEndpoint,
) -> list[Write]:
    """The Secrets of the contract, and the endpoint in this object and the infrastructure."""
    admin, authority, *_ = secret_names(control_plane, cluster)
    if not (seen.secrets.get(admin) and seen.secrets.get(authority)):
        return []  # the next pass sees them
    desired = cluster_secrets(
        control_plane, cluster.name, _data(seen.secrets, admin), _data(seen.secrets, authority)
    )
    writes: list[Write | None] = [
        secret_write(secret, seen.secrets.get(secret["metadata"]["name"])) for secret in desired
    ]
    before = control_plane.spec.control_plane_endpoint
    change = {"spec": {"controlPlaneEndpoint": msgspec.to_builtins(endpoint)}}
    writes.append(_infrastructure_write(seen.infrastructure, endpoint, before, change))
    if before != endpoint:
        name, namespace = control_plane.name, control_plane.namespace
        if before and cluster.spec.control_plane_endpoint == before:
            writes.append(Merge(Cluster, cluster.name, change, cluster.namespace))
        writes.append(Merge(KamajiControlPlane, name, change, namespace))  # last: it is ``before``
    return [w for w in writes if w is not None]


def _data(secrets: Secrets, name: str) -> dict[str, str]:
    return dict((secrets.get(name) or {}).get("data") or {})


def _infrastructure_write(
    found: Unstructured | None, endpoint: APIEndpoint, before: APIEndpoint, change: Json
) -> Merge | None:
    """Set the endpoint, or replace the one that this controller has set."""
    if found is None:
        return None
    set_to = (found.obj.get("spec") or {}).get("controlPlaneEndpoint") or {}
    known = (set_to.get("host"), set_to.get("port"))
    if not set_to.get("host") or known == _pair(before) != _pair(endpoint):
        return Merge(found.resource, found.name, change, found.namespace)
    if known == _pair(endpoint):
        return None
    raise Invalid(
        f"{found.resource.kind} {found.name} has the endpoint {set_to['host']}:"
        f"{set_to.get('port')}, but the control plane listens at {endpoint.host}:{endpoint.port}: "
        "remove one of them"
    )


def _pair(endpoint: APIEndpoint) -> tuple[str, int]:
    return endpoint.host, endpoint.port


def tenant_spec(control_plane: KamajiControlPlane, cluster: Cluster) -> Json:
    """The desired fields of the TenantControlPlane's spec; other fields stay as they are."""
    net, network = control_plane.spec.network, cluster.spec.cluster_network
    given = control_plane.spec.control_plane_endpoint or cluster.spec.control_plane_endpoint
    profile: Json = {
        "port": given.port or network.api_server_port or 6443,
        "certSANs": list(net.cert_sans),
    }
    if address := net.service_address or given.host:
        profile["address"] = address
    if network.services.cidr_blocks:
        profile["serviceCidr"] = network.services.cidr_blocks[0]
    if network.pods.cidr_blocks:
        profile["podCidr"] = network.pods.cidr_blocks[0]
    if network.service_domain:
        profile["clusterDomain"] = network.service_domain
    return {
        "dataStore": control_plane.spec.data_store_name,
        "kubernetes": _kubernetes(control_plane),
        "networkProfile": profile,
        "controlPlane": _deployment_and_service(control_plane),
        "addons": dict(control_plane.spec.addons),
    }


def _kubernetes(control_plane: KamajiControlPlane) -> Json:
    """Kamaji requires ``kubelet``, also empty."""
    kubelet: Json = {}
    if types := control_plane.spec.kubelet.preferred_address_types:
        kubelet["preferredAddressTypes"] = list(types)
    if driver := control_plane.spec.kubelet.cgroupfs:
        kubelet["cgroupfs"] = driver
    found: Json = {"version": control_plane.spec.version, "kubelet": kubelet}
    if plugins := control_plane.spec.admission_controllers:
        found["admissionControllers"] = list(plugins)
    return found


def _deployment_and_service(control_plane: KamajiControlPlane) -> Json:
    """Kamaji requires the type of the Service."""
    replicas, network = control_plane.spec.replicas, control_plane.spec.network
    service: Json = {"serviceType": network.service_type or DEFAULT_SERVICE_TYPE}
    extra = {"labels": dict(network.service_labels)}
    extra["annotations"] = dict(network.service_annotations)
    if metadata := {key: value for key, value in extra.items() if value}:
        service["additionalMetadata"] = metadata
    return {
        "deployment": {"replicas": DEFAULT_REPLICAS if replicas is None else replicas},
        "service": service,
    }


def tenant_endpoint(hosted: TenantControlPlane) -> APIEndpoint | None:
    """Where the API of the tenant listens, or None while it is not known."""
    host, _, port = hosted.status.control_plane_endpoint.rpartition(":")
    address = host.removeprefix("[").removesuffix("]")
    return APIEndpoint(host=address, port=int(port)) if host and port.isdigit() else None


def cluster_secrets(
    control_plane: KamajiControlPlane,
    cluster: str,
    admin: Mapping[str, str],
    authority: Mapping[str, str],
) -> tuple[Json, ...]:
    """The two Secrets of the Cluster API contract; the data is base64 already."""
    config = {"value": admin.get("admin.conf", "")}
    certificate = {"tls.crt": authority.get("ca.crt", ""), "tls.key": authority.get("ca.key", "")}
    secrets = ((f"{cluster}-kubeconfig", config), (f"{cluster}-ca", certificate))
    return tuple(_secret(control_plane, cluster, name, data) for name, data in secrets)


def _secret(
    control_plane: KamajiControlPlane, cluster: str, name: str, data: Mapping[str, str]
) -> Json:
    meta = {
        "name": name,
        "namespace": control_plane.namespace,
        "labels": {CLUSTER_NAME: cluster},
        "ownerReferences": [msgspec.to_builtins(owner_reference(control_plane))],
    }
    head = {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
    return head | {"type": SECRET_TYPE, "data": dict(data)}


def is_up(hosted: TenantControlPlane) -> bool:
    """Whether the API of the tenant answers."""
    return hosted.status.kubernetes_resources.version.status in {"Ready", "Upgrading"}


def describe(
    control_plane: KamajiControlPlane, seen: ObservedKamajiControlPlane
) -> ControlPlaneStatus:
    """The status, from that of the TenantControlPlane."""
    hosted = seen.hosted
    reported = hosted.status.kubernetes_resources if hosted else None
    up, counts = hosted is not None and is_up(hosted), reported.deployment if reported else None
    available = Condition(
        type="Available",
        status="True" if up else "False",
        reason=(reported.version.status if reported else "")
        or KamajiControlPlaneReason.PROVISIONING,
        message=_not_ready_message(hosted),
    )
    return ControlPlaneStatus(
        conditions=(available, *_addons(hosted)),
        initialization=ControlPlaneInitialization(
            control_plane_initialized=up or seen.was_initialized
        ),
        ready=up,
        external_managed_control_plane=True,
        replicas=counts.replicas if counts else 0,
        ready_replicas=counts.ready_replicas if counts else 0,
        available_replicas=counts.available_replicas if counts else 0,
        up_to_date_replicas=counts.updated_replicas if counts else 0,
        version=reported.version.version if reported else "",
        observed_generation=control_plane.metadata.generation,
    )


def _addons(hosted: TenantControlPlane | None) -> tuple[Condition, ...]:
    """The condition about add-ons, as the TenantControlPlane has it."""
    conditions = hosted.status.conditions if hosted else ()
    return tuple(c for c in conditions if c.type == ADDONS_READY)


def _not_ready_message(hosted: TenantControlPlane | None) -> str:
    """The message of the Ready condition of the TenantControlPlane while it is not true."""
    conditions = hosted.status.conditions if hosted else ()
    return next((c.message for c in conditions if c.type == "Ready" and c.status != "True"), "")
