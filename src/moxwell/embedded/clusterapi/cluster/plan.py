"""What a Cluster says of itself, from what its parts say: pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moxwell.api.capi.core import Cluster, ClusterInitialization, ClusterStatus, Machine, Replicas
from moxwell.api.capi.shared import CONTROL_PLANE_LABEL, Endpoint, FailureDomain
from moxwell.api.conditions import Condition
from moxwell.embedded.clusterapi.machineset.plan import is_ready
from moxwell.embedded.clusterapi.references import condition, is_provisioned

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """The parts of a cluster as they are now."""

    infrastructure: Json | None = None
    control_plane: Json | None = None
    machines: tuple[Machine, ...] = ()


def endpoint(cluster: Cluster, seen: Seen) -> Endpoint | None:
    """The endpoint to write into the Cluster, once somebody has brought one."""
    if cluster.spec.control_plane_endpoint:
        return None
    for part in (seen.infrastructure, seen.control_plane):
        found = ((part or {}).get("spec") or {}).get("controlPlaneEndpoint") or {}
        if found.get("host") and found.get("port"):
            return Endpoint(host=str(found["host"]), port=int(found["port"]))
    return None


def describe(cluster: Cluster, seen: Seen) -> ClusterStatus:
    """The status, from scratch; what happened once stays said."""
    infra, plane = is_provisioned(seen.infrastructure), _initialized(seen.control_plane)
    known = cluster.status.initialization
    initialization = ClusterInitialization(
        infrastructure_provisioned=infra or known.infrastructure_provisioned,
        control_plane_initialized=plane or known.control_plane_initialized,
    )
    workers = [m for m in seen.machines if CONTROL_PLANE_LABEL not in m.metadata.labels]
    return ClusterStatus(
        conditions=_conditions(seen, infra, plane, workers),
        initialization=initialization,
        failure_domains=_domains(seen.infrastructure),
        workers=_count(workers),
        phase=_phase(cluster, seen, initialization),
        observed_generation=cluster.metadata.generation,
    )


def _initialized(plane: Json | None) -> bool:
    status = (plane or {}).get("status") or {}
    newer = (status.get("initialization") or {}).get("controlPlaneInitialized")
    return bool(newer or status.get("initialized"))


def _phase(cluster: Cluster, seen: Seen, once: ClusterInitialization) -> str:
    if cluster.deleting:
        return "Deleting"
    if once.infrastructure_provisioned and cluster.spec.control_plane_endpoint:
        return "Provisioned"
    return "Provisioning" if seen.infrastructure else "Pending"


def _conditions(
    seen: Seen, infra: bool, plane: bool, workers: Sequence[Machine]
) -> tuple[Condition, ...]:
    said = condition(seen.infrastructure, "Ready") or {}
    ready = all(is_ready(m) for m in workers)
    return (
        _say("InfrastructureReady", infra, "Ready", said.get("reason") or "NotReady", said),
        _say("ControlPlaneInitialized", plane, "Initialized", "NotInitialized"),
        _say("WorkersAvailable", ready, "Available", "NotAvailable"),
        _say("Available", infra and plane and ready, "Available", "NotAvailable"),
    )


def _say(kind: str, good: bool, yes: str, no: str, said: Json | None = None) -> Condition:
    message = "" if good else str((said or {}).get("message") or "")
    return Condition(
        type=kind, status="True" if good else "False", reason=yes if good else no, message=message
    )


def _count(workers: Sequence[Machine]) -> Replicas:
    ready = sum(map(is_ready, workers))
    return Replicas(replicas=len(workers), ready_replicas=ready, available_replicas=ready)


def _domains(infra: Json | None) -> tuple[FailureDomain, ...]:
    found = ((infra or {}).get("status") or {}).get("failureDomains") or ()
    if isinstance(found, dict):  # the older contract has a map
        found = [{"name": name, **domain} for name, domain in found.items()]
    rows = [
        FailureDomain(
            name=d["name"],
            control_plane=d.get("controlPlane"),
            attributes=d.get("attributes") or {},
        )
        for d in found
    ]
    return tuple(sorted(rows, key=lambda d: d.name))
