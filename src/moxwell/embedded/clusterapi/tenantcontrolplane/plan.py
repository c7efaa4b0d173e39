"""What is asked of a hosted control plane and what is said of it: values and pure functions."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from moxwell.api.conditions import Condition
from moxwell.api.kamaji import (
    ROTATE,
    DeploymentStatus,
    KubeconfigsStatus,
    KubeconfigStatus,
    KubernetesStatus,
    Phase,
    StorageStatus,
    TenantControlPlane,
    TenantControlPlaneStatus,
    VersionStatus,
)
from moxwell.runtime.key import Key

Json = dict[str, Any]
_VERSION = re.compile(r"^v?(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A control plane as it should be."""

    key: Key
    uid: str
    version: str
    replicas: int
    address: str = ""
    port: int = 6443
    sans: tuple[str, ...] = ()
    service_cidr: str = "10.96.0.0/16"
    pod_cidr: str = "10.244.0.0/16"
    domain: str = "cluster.local"
    rotation: str = ""  # a new value asks for new certificates


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """A control plane as it is. The texts are secrets but for ``ca``."""

    host: str
    port: int
    version: str
    ready: bool
    known: bool = False  # it was ready once
    says: str = ""
    ca: str = ""
    ca_key: str = ""
    admin: str = ""
    expires: datetime | None = None
    driver: str = "embedded"

    def __repr__(self) -> str:
        return f"Plane({self.host}:{self.port}, {self.version}, ready={self.ready})"


class Planes(Protocol):
    """Runs control planes; every call may be repeated."""

    async def ensure(self, wish: Wish) -> Plane:
        """Bring it up, or bring it to what is wished; returns at once with how it is."""
        ...

    async def sleep(self, key: Key) -> None:
        """Stop it and keep its data."""
        ...

    async def destroy(self, key: Key) -> None:
        """Stop it and leave nothing."""
        ...


def wish(tenant: TenantControlPlane) -> Wish:
    """What a TenantControlPlane asks for."""
    net = tenant.spec.network_profile
    return Wish(
        key=Key(tenant.namespace, tenant.name),
        uid=tenant.uid,
        version=tenant.spec.kubernetes.version,
        replicas=tenant.spec.control_plane.deployment.replicas,
        address=net.address,
        port=net.port,
        sans=net.cert_sans,
        service_cidr=net.service_cidr,
        pod_cidr=net.pod_cidr,
        domain=net.cluster_domain,
        rotation=tenant.metadata.annotations.get(ROTATE, ""),
    )


def refusal(before: str, after: str) -> str:
    """Why a change of version is not taken; empty: it is."""
    old, new = _VERSION.match(before), _VERSION.match(after)
    if new is None:
        return f"{after!r} is not a Kubernetes version: write it like v1.34.1"
    if old is None:
        return ""
    was, now = tuple(map(int, old.groups())), tuple(map(int, new.groups()))
    if now[:2] < was[:2]:
        return f"a control plane cannot go back from {before} to {after}"
    if now[0] != was[0] or now[1] > was[1] + 1:
        return f"a control plane goes one minor version at a time: from {before} not to {after}"
    return ""


def secrets(tenant: TenantControlPlane, plane: Plane, owner: Json) -> tuple[Json, ...]:
    """The Secrets that Kamaji makes for a tenant, as far as anybody reads them."""
    config = {"admin.conf": plane.admin, "super-admin.conf": plane.admin}
    authority = {"ca.crt": plane.ca, "ca.key": plane.ca_key}
    rows = ((f"{tenant.name}-admin-kubeconfig", config), (f"{tenant.name}-ca", authority))
    return tuple(_secret(name, tenant.namespace, data, owner) for name, data in rows)


def _secret(name: str, namespace: str, data: Mapping[str, str], owner: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner]},
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
    }


def describe(
    tenant: TenantControlPlane, plane: Plane | None, why: str = ""
) -> TenantControlPlaneStatus:
    """The status, from scratch; without a plane it sleeps."""
    phase, count = _phase(tenant, plane), tenant.spec.control_plane.deployment.replicas
    up = count if plane is not None and plane.ready else 0
    said = why or (plane.says if plane else "asleep: replicas is 0")
    ready = Condition(
        type="Ready", status="True" if up else "False", reason=phase or "Unknown", message=said
    )
    return TenantControlPlaneStatus(
        kubernetes_resources=KubernetesStatus(
            version=VersionStatus(version=_version(tenant, plane), status=phase),
            deployment=DeploymentStatus(
                name=tenant.name,
                namespace=tenant.namespace,
                replicas=count,
                ready_replicas=up,
                updated_replicas=up,
                available_replicas=up,
            ),
        ),
        control_plane_endpoint=f"{plane.host}:{plane.port}" if plane else "",
        kubeconfig=KubeconfigsStatus(
            admin=KubeconfigStatus(secret_name=f"{tenant.name}-admin-kubeconfig")
        ),
        certificates=_certificates(plane),
        storage=StorageStatus(
            driver=plane.driver if plane else "", data_store_name=tenant.spec.data_store
        ),
        conditions=(ready,),
    )


def _certificates(plane: Plane | None) -> Json:
    if plane is None or plane.expires is None:
        return {}
    return {"apiServer": {"expiration": plane.expires.strftime("%Y-%m-%dT%H:%M:%SZ")}}


def _version(tenant: TenantControlPlane, plane: Plane | None) -> str:
    """What answers; while nothing does, what answered last."""
    if plane is not None and plane.ready:
        return plane.version
    return tenant.status.kubernetes_resources.version.version


def _phase(tenant: TenantControlPlane, plane: Plane | None) -> Phase:
    if plane is None:
        return "Sleeping"
    was = tenant.status.kubernetes_resources.version.version
    if plane.known and not plane.ready:
        return "Upgrading" if was and was != plane.version else "NotReady"
    if not plane.ready:
        return "Provisioning"
    wanted = tenant.spec.kubernetes.version
    return "Ready" if plane.version == wanted else "Upgrading"
