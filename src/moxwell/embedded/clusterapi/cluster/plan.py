"""
The next move and status of a Cluster, from its infrastructure, control plane and Machines. Pure.

``initialization`` is derived from the providers' objects, which report it for as long as they
exist; the Cluster's own earlier status is not read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from moxwell.api.capi.core import Cluster, ClusterInitialization, ClusterStatus, Machine, Replicas
from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.capi.shared import CONTROL_PLANE_LABEL, APIEndpoint, FailureDomain
from moxwell.api.conditions import Condition
from moxwell.embedded.clusterapi.machines import is_ready
from moxwell.embedded.clusterapi.references import (
    adoption,
    condition,
    is_provisioned,
)
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.unstructured import Unstructured
from moxwell.runtime.writes import Delete, Merge, Write, Writes

Json = dict[str, Any]
POLL_SECONDS = 5.0


class ClusterReason(StrEnum):
    """Reasons of the conditions and moves of a Cluster."""

    READY = "Ready"
    NOT_READY = "NotReady"
    INITIALIZED = "Initialized"
    NOT_INITIALIZED = "NotInitialized"
    AVAILABLE = "Available"
    NOT_AVAILABLE = "NotAvailable"
    WAITING_FOR_INFRASTRUCTURE = "WaitingForInfrastructure"
    WAITING_FOR_ENDPOINT = "WaitingForControlPlaneEndpoint"
    DELETING_MACHINES = "WaitingForWorkersDeletion"
    DELETING_CONTROL_PLANE = "WaitingForControlPlaneDeletion"
    DELETING_INFRASTRUCTURE = "WaitingForInfrastructureDeletion"


@dataclass(frozen=True, slots=True)
class ObservedCluster:
    """The objects of a cluster; ``deployments`` and ``sets`` are read only for a deletion."""

    infrastructure: Unstructured | None = None
    control_plane: Unstructured | None = None
    machines: tuple[Machine, ...] = ()
    deployments: tuple[MachineDeployment, ...] = ()
    sets: tuple[MachineSet, ...] = ()


def next_move(cluster: Cluster, seen: ObservedCluster) -> WriteMove:
    """Own the parts and copy the endpoint, or delete the parts in order."""
    if cluster.deleting:
        return _deletion(seen)
    found = endpoint(cluster, seen)
    writes: list[Write | None] = [
        adoption(part, cluster, cluster.name) for part in (seen.infrastructure, seen.control_plane)
    ]
    if found is not None:
        change = {"spec": {"controlPlaneEndpoint": msgspec.to_builtins(found)}}
        writes.append(Merge(Cluster, cluster.name, change, cluster.namespace))
    if due := tuple(w for w in writes if w is not None):
        return Writes(due)
    if not is_provisioned(_body(seen.infrastructure)):
        reason = ClusterReason.WAITING_FOR_INFRASTRUCTURE
        return Wait(reason, requeue_after=POLL_SECONDS)
    if not cluster.spec.control_plane_endpoint:
        return Wait(ClusterReason.WAITING_FOR_ENDPOINT, requeue_after=POLL_SECONDS)
    return Done()


def _deletion(seen: ObservedCluster) -> WriteMove:
    """Machines first, then the control plane, then the infrastructure."""
    groups: tuple[tuple[Any, Sequence[Any]], ...] = (
        (MachineDeployment, seen.deployments),
        (MachineSet, seen.sets),
        (Machine, seen.machines),
    )
    for kind, objects in groups:
        if objects:
            deletes = [Delete(kind, o.name, o.namespace, o.uid) for o in objects if not o.deleting]
            return _delete(deletes, ClusterReason.DELETING_MACHINES)
    parts = (
        (seen.control_plane, ClusterReason.DELETING_CONTROL_PLANE),
        (seen.infrastructure, ClusterReason.DELETING_INFRASTRUCTURE),
    )
    for part, reason in parts:
        if part is not None:
            return _delete([] if part.deleting else [part.delete()], reason)
    return Done()


def _delete(deletes: Sequence[Delete], reason: ClusterReason) -> WriteMove:
    if deletes:
        return Writes(tuple(deletes), reason, POLL_SECONDS)
    return Wait(reason, requeue_after=POLL_SECONDS)


def endpoint(cluster: Cluster, seen: ObservedCluster) -> APIEndpoint | None:
    """The endpoint to copy into the Cluster from its infrastructure or control plane."""
    if cluster.spec.control_plane_endpoint:
        return None
    for part in (seen.infrastructure, seen.control_plane):
        found = ((_body(part) or {}).get("spec") or {}).get("controlPlaneEndpoint") or {}
        if found.get("host") and found.get("port"):
            return APIEndpoint(host=str(found["host"]), port=int(found["port"]))
    return None


def describe(cluster: Cluster, seen: ObservedCluster) -> ClusterStatus:
    """The status of a Cluster."""
    infrastructure = _body(seen.infrastructure)
    provisioned, initialized = is_provisioned(infrastructure), _is_initialized(seen.control_plane)
    workers = [m for m in seen.machines if CONTROL_PLANE_LABEL not in m.metadata.labels]
    return ClusterStatus(
        conditions=_conditions(infrastructure, provisioned, initialized, workers),
        initialization=ClusterInitialization(
            infrastructure_provisioned=provisioned, control_plane_initialized=initialized
        ),
        failure_domains=_failure_domains(infrastructure),
        workers=_replicas(workers),
        phase=_phase(cluster, provisioned, infrastructure),
        observed_generation=cluster.metadata.generation,
    )


def _body(part: Unstructured | None) -> Json | None:
    return part.obj if part else None


def _is_initialized(control_plane: Unstructured | None) -> bool:
    status = (_body(control_plane) or {}).get("status") or {}
    v1beta2 = (status.get("initialization") or {}).get("controlPlaneInitialized")
    return bool(v1beta2 or status.get("initialized"))


def _phase(cluster: Cluster, provisioned: bool, infrastructure: Json | None) -> str:
    if cluster.deleting:
        return "Deleting"
    if provisioned and cluster.spec.control_plane_endpoint:
        return "Provisioned"
    return "Provisioning" if infrastructure else "Pending"


def _conditions(
    infrastructure: Json | None, provisioned: bool, initialized: bool, workers: Sequence[Machine]
) -> tuple[Condition, ...]:
    reported = condition(infrastructure, "Ready") or {}
    waiting = reported.get("reason") or ClusterReason.NOT_READY
    message = "" if provisioned else str(reported.get("message") or "")
    ready = all(is_ready(m) for m in workers)
    available, unavailable = ClusterReason.AVAILABLE, ClusterReason.NOT_AVAILABLE
    return (
        _condition("InfrastructureReady", provisioned, ClusterReason.READY, waiting, message),
        _condition(
            "ControlPlaneInitialized",
            initialized,
            ClusterReason.INITIALIZED,
            ClusterReason.NOT_INITIALIZED,
        ),
        _condition("WorkersAvailable", ready, available, unavailable),
        _condition("Available", provisioned and initialized and ready, available, unavailable),
    )


def _condition(kind: str, true: bool, reason: str, otherwise: str, message: str = "") -> Condition:
    if true:
        return Condition(type=kind, status="True", reason=reason, message=message)
    return Condition(type=kind, status="False", reason=otherwise, message=message)


def _replicas(workers: Sequence[Machine]) -> Replicas:
    ready = sum(map(is_ready, workers))
    return Replicas(replicas=len(workers), ready_replicas=ready, available_replicas=ready)


def _failure_domains(infrastructure: Json | None) -> tuple[FailureDomain, ...]:
    found = ((infrastructure or {}).get("status") or {}).get("failureDomains") or ()
    if isinstance(found, dict):  # the v1beta1 contract has a map
        found = [{"name": name, **domain} for name, domain in found.items()]
    domains = [
        FailureDomain(
            name=d["name"],
            control_plane=d.get("controlPlane"),
            attributes=d.get("attributes") or {},
        )
        for d in found
    ]
    return tuple(sorted(domains, key=lambda d: d.name))
