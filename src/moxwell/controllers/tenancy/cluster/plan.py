"""
What to write for a tenant cluster, what to take away, and what to say of it: pure.

``leftovers`` are objects of ours that nobody asks for any more. A template goes only when no
MachineSet and no MachineDeployment names it: Cluster API still reads it while an old set lives.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from moxwell.api.capi.controlplane import KamajiControlPlane
from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.conditions import Condition
from moxwell.api.cozystack import GroupStatus, Kubernetes, KubernetesStatus
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.controllers.tenancy.cluster.naming import GROUP_LABEL
from moxwell.controllers.tenancy.cluster.rollout_order import Queued

Json = dict[str, Any]
TEMPLATES = ("ProxmoxMachineTemplate", "KubeadmConfigTemplate")


@dataclass(frozen=True, slots=True)
class Seen:
    """The objects of a tenant cluster as they are."""

    cluster: Cluster | None = None
    plane: KamajiControlPlane | None = None
    deployments: tuple[MachineDeployment, ...] = ()
    sets: tuple[MachineSet, ...] = ()
    ours: tuple[Json, ...] = ()  # deployments, checks and templates that carry our label
    machines: tuple[Machine, ...] = ()
    guests: tuple[ProxmoxMachine, ...] = ()


def leftovers(desired: Iterable[Json], seen: Seen) -> tuple[Json, ...]:
    """What of ours nobody asks for any more."""
    wanted = {(o["kind"], o["metadata"]["name"]) for o in desired}
    used = set(_used(seen))
    return tuple(
        obj
        for obj in seen.ours
        if _name(obj) not in wanted and not (obj["kind"] in TEMPLATES and _name(obj) in used)
    )


def _used(seen: Seen) -> Iterable[tuple[str, str]]:
    templates = [s.spec.template for s in seen.sets] + [d.spec.template for d in seen.deployments]
    for spec in (template.spec for template in templates):
        for ref in (spec.infrastructure_ref, spec.bootstrap.config_ref):
            if ref is not None:
                yield ref.kind, ref.name


def _name(obj: Json) -> tuple[str, str]:
    return obj["kind"], obj["metadata"]["name"]


def first_replicas(obj: Json) -> Json:
    """A deployment that an autoscaler sizes starts at its least; later its count is not ours."""
    bounds = _bounds(obj)
    if obj["kind"] != "MachineDeployment" or bounds is None:
        return obj
    return {**obj, "spec": {**obj["spec"], "replicas": bounds[0]}}


def _bounds(obj: Json) -> tuple[int, int] | None:
    notes = obj["metadata"].get("annotations") or {}
    found = {k.rpartition("node-group-")[2]: v for k, v in notes.items() if "node-group-" in k}
    if "min-size" not in found:
        return None
    return int(found["min-size"]), int(found.get("max-size", found["min-size"]))


def handed_over(obj: Json, found: Json, manager: str) -> int | None:
    """
    The count that passes from us to an autoscaler: what there is, within the bounds.

    Only once, while the field is still ours: an apply without it would take it away.
    """
    bounds, count = _bounds(obj), (found.get("spec") or {}).get("replicas")
    if obj["kind"] != "MachineDeployment" or bounds is None or count is None:
        return None
    ours = [f for f in found["metadata"].get("managedFields") or () if f["manager"] == manager]
    owned = any("f:replicas" in (f.get("fieldsV1") or {}).get("f:spec", {}) for f in ours)
    return min(max(int(count), bounds[0]), bounds[1]) if owned else None


def only_replicas(obj: Json, count: int) -> Json:
    """A deployment of which nothing is said but how many."""
    meta = {key: obj["metadata"][key] for key in ("name", "namespace")}
    spec = {key: obj["spec"][key] for key in ("clusterName", "selector", "template")}
    return {**obj, "metadata": meta, "spec": {**spec, "replicas": count}}


def describe(app: Kubernetes, seen: Seen, waiting: Sequence[Queued] = ()) -> KubernetesStatus:
    """The status, from scratch."""
    groups = tuple(_group(d) for d in sorted(seen.deployments, key=lambda d: d.name))
    plane, cluster = seen.plane, seen.cluster
    up = bool(plane and plane.status.ready)
    missing = [said for d in sorted(seen.deployments, key=lambda d: d.name) if (said := _lacks(d))]
    missing += [q.sentence() for q in waiting if q.counts]
    endpoint = cluster.spec.control_plane_endpoint if cluster else None
    return KubernetesStatus(
        conditions=_conditions(app, seen, up, missing, waiting),
        phase=_phase(app, up, missing),
        version=plane.status.version if plane else "",
        endpoint=f"https://{endpoint.host}:{endpoint.port}" if endpoint else "",
        kubeconfig_secret=f"{app.name}-kubeconfig" if up else "",
        groups=groups,
        replicas=sum(g.replicas for g in groups),
        ready_replicas=sum(g.ready for g in groups),
        observed_generation=app.metadata.generation,
    )


def _lacks(deployment: MachineDeployment) -> str:
    """What a group still has to do; what it says of itself counts only for the spec it has now."""
    group, status = _group(deployment), deployment.status
    wanted = group.desired or 0
    if group.ready < wanted:
        return f"{group.name}: {group.ready} of {wanted} ready"
    if status.observed_generation < deployment.metadata.generation:
        return f"{group.name}: its change is being taken up"
    if group.replicas == wanted:
        return ""
    if _rolls(deployment):
        return f"{group.name}: rolling, {status.up_to_date_replicas or 0} of {wanted} are new"
    return f"{group.name}: {group.replicas - wanted} of {group.replicas} still to leave"


def _group(deployment: MachineDeployment) -> GroupStatus:
    return GroupStatus(
        name=deployment.metadata.labels.get(GROUP_LABEL, deployment.name),
        replicas=deployment.status.replicas or 0,
        ready=deployment.status.ready_replicas or 0,
        desired=1 if deployment.spec.replicas is None else deployment.spec.replicas,
    )


def _phase(app: Kubernetes, up: bool, missing: Sequence[str]) -> str:
    if app.deleting:
        return "Deleting"
    if not up:
        return "Provisioning"
    return "Scaling" if missing else "Ready"


def _plane_says(seen: Seen) -> str:
    """What its host says of a control plane: that a version is not installed, for one."""
    said = seen.plane.status.conditions if seen.plane else ()
    return next((c.message for c in said if c.type == "Available"), "")


def _conditions(
    app: Kubernetes, seen: Seen, up: bool, missing: Sequence[str], waiting: Sequence[Queued]
) -> tuple[Condition, ...]:
    plane = Condition(
        type="ControlPlaneReady",
        status="True" if up else "False",
        reason="Ready" if up else "Provisioning",
        message=_plane_says(seen) or ("" if up else "the control plane is not up yet"),
    )
    rolling = [d.name for d in seen.deployments if _rolls(d)]
    said = [f"{', '.join(rolling)} roll to their new templates"] if rolling else []
    said += [q.sentence() for q in waiting]
    nodes = Condition(
        type="NodesReady",
        status="False" if missing else "True",
        reason="Waiting" if missing else "Ready",
        message=", ".join(missing),
    )
    updated = Condition(
        type="UpToDate",
        status="False" if said else "True",
        reason="Rolling" if said else "UpToDate",
        message="; ".join(said),
    )
    good = up and not missing and not app.deleting
    why = nodes if up else plane
    ready = Condition(
        type="Ready",
        status="True" if good else "False",
        reason="Ready" if good else "Deleting" if app.deleting else why.reason,
        message="" if good else why.message,
    )
    return (ready, plane, nodes, updated)


def _rolls(deployment: MachineDeployment) -> bool:
    status = deployment.status
    return (status.up_to_date_replicas or 0) < (status.replicas or 0)
