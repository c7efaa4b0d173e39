"""
The next move and status of a TenantControlPlane, and the interface of its runner. Pure.

``ControlPlaneRunner`` is implemented in :mod:`moxwell.embedded.controlplanes`. The version that
answered last must survive a restart; it is an annotation of the admin kubeconfig Secret
(``VERSION``), written when that Secret is published.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Protocol

import msgspec

from moxwell.api.conditions import Condition
from moxwell.api.kamaji import (
    ADDONS_READY,
    ROTATE,
    KubeconfigsStatus,
    KubeconfigStatus,
    Phase,
    StorageStatus,
    TenantControlPlane,
    TenantControlPlaneStatus,
    TenantDeploymentStatus,
    TenantKubernetesStatus,
    VersionStatus,
)
from moxwell.api.kinds import owner_reference
from moxwell.embedded.clusterapi.secrets import secret_write
from moxwell.embedded.ports import host_port
from moxwell.errors import Invalid
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Writes

Json = dict[str, Any]
POLL_SECONDS = 2.0
ADDON_SECONDS = 10.0  # between two looks at add-ons that do not run yet
CHECK_SECONDS = 300.0  # between two calls of the runner, which renews certificates
VERSION = "moxwell.dev/kubernetes-version"
_VERSION = re.compile(r"^v?(\d+)\.(\d+)\.(\d+)")


class TenantControlPlaneReason(StrEnum):
    """Reasons of events; the reason of the Ready condition is Kamaji's phase, or UNKNOWN."""

    UNKNOWN = "Unknown"
    SECRET_WRITTEN = "SecretWritten"
    PROCESS_RESTARTED = "ProcessRestarted"
    ADDONS_RUN = "AddonsRun"
    ADDONS_WAIT = "AddonsWait"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedControlPlaneSpec:
    """The desired state of a hosted control plane."""

    key: Key
    uid: str
    version: str
    replicas: int
    address: str = ""
    port: int = 6443
    cert_sans: tuple[str, ...] = ()
    service_cidr: str = "10.96.0.0/16"
    pod_cidr: str = "10.244.0.0/16"
    cluster_domain: str = "cluster.local"
    rotation: str = ""  # another value causes new certificates
    external: str = ""  # host and port that nodes use, if not those it listens on


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedControlPlane:
    """The reported state of a hosted control plane; ``ca_key`` and the kubeconfig are secret."""

    host: str
    port: int
    version: str
    ready: bool
    initialized: bool = False  # it has been ready once
    message: str = ""
    last_exit: str = ""  # why a process of it was restarted last
    ca: str = ""
    ca_key: str = ""
    admin_kubeconfig: str = ""
    expires: datetime | None = None
    driver: str = "embedded"
    ready_replicas: int | None = None  # API servers that answer; None: not counted
    addons: str | None = None  # what its add-ons wait for; empty: they run; None: it has none

    def __repr__(self) -> str:
        return f"HostedControlPlane({self.host}:{self.port}, {self.version}, ready={self.ready})"


class ControlPlaneRunner(Protocol):
    """Runs control planes; every call is idempotent."""

    async def ensure(self, spec: HostedControlPlaneSpec) -> HostedControlPlane:
        """Start or change a control plane; returns at once with its present state."""
        ...

    async def sleep(self, key: Key) -> None:
        """Stop it and keep its data."""
        ...

    async def destroy(self, key: Key) -> None:
        """Stop it and delete its data."""
        ...


@dataclass(frozen=True, slots=True)
class ObservedTenantControlPlane:
    """``state`` is None while it is unknown; ``secrets`` are the published Secrets by name."""

    state: HostedControlPlane | None = None
    secrets: Mapping[str, Json | None] = field(default_factory=dict, repr=False)

    def last_version(self, tenant: TenantControlPlane) -> str:
        """The version that answered last."""
        found = self.secrets.get(kubeconfig_name(tenant)) or {"metadata": {}}
        return str((found["metadata"].get("annotations") or {}).get(VERSION, ""))


@dataclass(frozen=True, slots=True)
class EnsureControlPlane:
    """Let the runner start or change the control plane."""

    spec: HostedControlPlaneSpec
    requeue_after: float


@dataclass(frozen=True, slots=True)
class SleepControlPlane:
    """Stop the control plane and keep its data."""

    key: Key


@dataclass(frozen=True, slots=True)
class DestroyControlPlane:
    """Stop the control plane and delete its data."""

    key: Key
    final = True  # the runner does not report what it has deleted


TenantControlPlaneMove = (
    EnsureControlPlane | SleepControlPlane | DestroyControlPlane | Writes | Done
)


def kubeconfig_name(tenant: TenantControlPlane) -> str:
    return f"{tenant.name}-admin-kubeconfig"


def ca_name(tenant: TenantControlPlane) -> str:
    return f"{tenant.name}-ca"


def next_move(
    tenant: TenantControlPlane, seen: ObservedTenantControlPlane
) -> TenantControlPlaneMove:
    """Run the control plane as specified and publish its credentials; Invalid for a bad version."""
    key = Key(tenant.namespace, tenant.name)
    if tenant.deleting:
        return DestroyControlPlane(key)
    if why := version_error(seen.last_version(tenant), tenant.spec.kubernetes.version):
        raise Invalid(why)
    if is_asleep(tenant):
        return SleepControlPlane(key)
    if seen.state is None:
        return EnsureControlPlane(spec_of(tenant), requeue_after=0.0)
    if not seen.state.ready:
        return EnsureControlPlane(spec_of(tenant), POLL_SECONDS)
    desired = secrets(tenant, seen.state)
    writes = [secret_write(s, seen.secrets.get(s["metadata"]["name"])) for s in desired]
    if due := tuple(w for w in writes if w is not None):
        return Writes(due)
    if seen.state.addons:
        return EnsureControlPlane(spec_of(tenant), ADDON_SECONDS)
    return Done(CHECK_SECONDS)


def is_asleep(tenant: TenantControlPlane) -> bool:
    """Whether the control plane is stopped by zero replicas."""
    return tenant.spec.control_plane.deployment.replicas == 0


def spec_of(tenant: TenantControlPlane) -> HostedControlPlaneSpec:
    """The desired control plane of a TenantControlPlane."""
    net = tenant.spec.network_profile
    return HostedControlPlaneSpec(
        key=Key(tenant.namespace, tenant.name),
        uid=tenant.uid,
        version=tenant.spec.kubernetes.version,
        replicas=tenant.spec.control_plane.deployment.replicas,
        address=net.address,
        port=net.port,
        cert_sans=net.cert_sans,
        service_cidr=net.service_cidr,
        pod_cidr=net.pod_cidr,
        cluster_domain=net.cluster_domain,
        rotation=tenant.metadata.annotations.get(ROTATE, ""),
    )


def version_error(before: str, after: str) -> str:
    """Why a change of the version is not possible; empty if it is."""
    old, new = _VERSION.match(before), _VERSION.match(after)
    if new is None:
        return f"{after!r} is not a Kubernetes version: write it like v1.34.1"
    if old is None:
        return ""
    was, now = tuple(map(int, old.groups())), tuple(map(int, new.groups()))
    if now[:2] < was[:2]:
        return f"a control plane cannot be downgraded from {before} to {after}"
    if now[0] != was[0] or now[1] > was[1] + 1:
        return (
            f"a control plane is upgraded by one minor version at a time, not {before} to {after}"
        )
    return ""


def secrets(tenant: TenantControlPlane, state: HostedControlPlane) -> tuple[Json, ...]:
    """The Secrets of Kamaji that are read elsewhere: the admin kubeconfig and the CA."""
    config = {"admin.conf": state.admin_kubeconfig, "super-admin.conf": state.admin_kubeconfig}
    authority = {"ca.crt": state.ca, "ca.key": state.ca_key}
    return (
        _secret(tenant, kubeconfig_name(tenant), config, {VERSION: state.version}),
        _secret(tenant, ca_name(tenant), authority, {}),
    )


def _secret(
    tenant: TenantControlPlane,
    name: str,
    data: Mapping[str, str],
    annotations: Mapping[str, str],
) -> Json:
    owners = [msgspec.to_builtins(owner_reference(tenant))]
    meta: Json = {"name": name, "namespace": tenant.namespace, "ownerReferences": owners}
    if annotations:
        meta["annotations"] = dict(annotations)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": meta,
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
    }


def describe(
    tenant: TenantControlPlane, seen: ObservedTenantControlPlane
) -> TenantControlPlaneStatus | None:
    """The status; None while the state is unknown, which leaves the status as it is."""
    state = None if is_asleep(tenant) else seen.state
    if tenant.deleting or (state is None and not is_asleep(tenant)):
        return None
    last = seen.last_version(tenant)
    phase, count = _phase(tenant, state, last), tenant.spec.control_plane.deployment.replicas
    up = _ready_replicas(state, count)
    ready = Condition(
        type="Ready",
        status="True" if up else "False",
        reason=phase or TenantControlPlaneReason.UNKNOWN,
        message=state.message if state else "stopped: replicas is 0",
    )
    return TenantControlPlaneStatus(
        kubernetes_resources=TenantKubernetesStatus(
            version=VersionStatus(
                version=state.version if state is not None and state.ready else last, status=phase
            ),
            deployment=TenantDeploymentStatus(
                name=tenant.name,
                namespace=tenant.namespace,
                replicas=count,
                ready_replicas=up,
                updated_replicas=up,
                available_replicas=up,
            ),
        ),
        control_plane_endpoint=host_port(state.host, state.port) if state else "",
        kubeconfig=KubeconfigsStatus(
            admin=KubeconfigStatus(secret_name=kubeconfig_name(tenant)),
        ),
        certificates=_certificates(state),
        storage=StorageStatus(
            driver=state.driver if state else "", data_store_name=tenant.spec.data_store
        ),
        conditions=(ready, *_addons(state)),
    )


def _addons(state: HostedControlPlane | None) -> tuple[Condition, ...]:
    """Whether the add-ons run; none if there are none."""
    if state is None or state.addons is None:
        return ()
    waits = bool(state.addons)
    reason = TenantControlPlaneReason.ADDONS_WAIT if waits else TenantControlPlaneReason.ADDONS_RUN
    status: Literal["True", "False"] = "False" if waits else "True"
    return (
        Condition(type=ADDONS_READY, status=status, reason=reason, message=state.addons[:4096]),
    )


def _ready_replicas(state: HostedControlPlane | None, count: int) -> int:
    if state is None or not state.ready:
        return 0
    return count if state.ready_replicas is None else state.ready_replicas


def _certificates(state: HostedControlPlane | None) -> Json:
    if state is None or state.expires is None:
        return {}
    return {"apiServer": {"expiration": state.expires.strftime("%Y-%m-%dT%H:%M:%SZ")}}


def _phase(tenant: TenantControlPlane, state: HostedControlPlane | None, last: str) -> Phase:
    if state is None:
        return "Sleeping"
    if state.initialized and not state.ready:
        return "Upgrading" if last and last != state.version else "NotReady"
    if not state.ready:
        return "Provisioning"
    return "Ready" if state.version == tenant.spec.kubernetes.version else "Upgrading"
