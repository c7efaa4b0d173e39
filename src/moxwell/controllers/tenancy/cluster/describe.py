"""The status of a tenant cluster, computed from its objects and its plan. Pure."""

from collections.abc import Iterable, Sequence

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.conditions import Condition
from moxwell.api.cozystack import GroupStatus, Kubernetes, KubernetesStatus
from moxwell.api.kamaji import ADDONS_READY
from moxwell.controllers.tenancy.cluster.defaults import groups_of
from moxwell.controllers.tenancy.cluster.naming import GROUP_LABEL
from moxwell.controllers.tenancy.cluster.plan import (
    ObservedTenantCluster,
    TenantClusterPlan,
    TenantClusterReason,
)
from moxwell.preflight.outcome import CheckLevel, RegionCheck

Reason = TenantClusterReason
MAX_MESSAGE = 4096


def describe_cluster(
    app: Kubernetes, seen: ObservedTenantCluster, plan: TenantClusterPlan
) -> KubernetesStatus:
    """The status of a tenant cluster, computed from its objects and its plan."""
    deployments = sorted(seen.deployments, key=lambda d: d.name)
    groups = tuple(_group_status(d) for d in deployments)
    up = bool(seen.control_plane and seen.control_plane.status.ready)
    missing = tuple(_incomplete(deployments, plan))
    endpoint = seen.cluster.spec.control_plane_endpoint if seen.cluster else None
    return KubernetesStatus(
        conditions=_conditions(app, seen, up, missing, tuple(_outdated(deployments, plan))),
        phase=_phase(app, up, missing),
        version=seen.control_plane.status.version if seen.control_plane else "",
        endpoint=f"https://{endpoint.host}:{endpoint.port}" if endpoint else "",
        kubeconfig_secret=f"{app.name}-kubeconfig" if up else "",
        groups=groups,
        replicas=sum(g.replicas for g in groups),
        ready_replicas=sum(g.ready for g in groups),
        node_versions=tuple(sorted(_node_versions(app, seen.machines))),
        observed_generation=app.metadata.generation,
    )


def _node_versions(app: Kubernetes, machines: Iterable[Machine]) -> set[str]:
    """The versions of nodes whose group has none of its own."""
    own = {group.name for group in groups_of(app) if group.version}
    return {
        machine.spec.version
        for machine in machines
        if machine.spec.version and machine.metadata.labels.get(GROUP_LABEL) not in own
    }


def _incomplete(deployments: Iterable[MachineDeployment], plan: TenantClusterPlan) -> Iterable[str]:
    """Groups that do not have their nodes yet, or whose change is only being written."""
    written = {c.name: c for c in plan.due if c.changes_nodes and c.action != "delete"}
    for deployment in deployments:
        change = written.pop(deployment.name, None)
        if text := _missing_nodes(deployment):
            yield text
        elif change is not None:
            yield f"{_group_status(deployment).name}: {', '.join(change.fields)} changes"
    yield from (f"{name} is being created" for name in written)
    yield from (str(group) for group in plan.waiting if group.scales)


def _missing_nodes(deployment: MachineDeployment) -> str:
    """What a group still lacks; its status counts only if it is about the current spec."""
    group, status = _group_status(deployment), deployment.status
    wanted = group.desired or 0
    if group.ready < wanted:
        return f"{group.name}: {group.ready} of {wanted} nodes ready"
    if status.observed_generation < deployment.metadata.generation:
        return f"{group.name}: its new spec is not observed yet"
    if group.replicas == wanted:
        return ""
    if _is_rolling(deployment):
        updated = status.up_to_date_replicas or 0
        return f"{group.name}: rolling, {updated} of {wanted} nodes up to date"
    return f"{group.name}: {group.replicas - wanted} of {group.replicas} nodes to be deleted"


def _outdated(deployments: Iterable[MachineDeployment], plan: TenantClusterPlan) -> Iterable[str]:
    """Groups that roll now, or will."""
    rolling = {d.name for d in deployments if _is_rolling(d)}
    rolling |= {c.name for c in plan.due if c.action == "update" and c.rolls_nodes}
    if rolling:
        yield f"rolling to new templates: {', '.join(sorted(rolling))}"
    yield from map(str, plan.waiting)


def _group_status(deployment: MachineDeployment) -> GroupStatus:
    return GroupStatus(
        name=deployment.metadata.labels.get(GROUP_LABEL, deployment.name),
        replicas=deployment.status.replicas or 0,
        ready=deployment.status.ready_replicas or 0,
        desired=1 if deployment.spec.replicas is None else deployment.spec.replicas,
    )


def _is_rolling(deployment: MachineDeployment) -> bool:
    status = deployment.status
    return (status.up_to_date_replicas or 0) < (status.replicas or 0)


def _phase(app: Kubernetes, up: bool, missing: Sequence[str]) -> str:
    if app.deleting:
        return "Deleting"
    if not up:
        return "Provisioning"
    return "Scaling" if missing else "Ready"


def _conditions(
    app: Kubernetes,
    seen: ObservedTenantCluster,
    up: bool,
    missing: Sequence[str],
    outdated: Sequence[str],
) -> tuple[Condition, ...]:
    control_plane = Condition(
        type="ControlPlaneReady",
        status="True" if up else "False",
        reason=Reason.READY if up else Reason.PROVISIONING,
        message=_control_plane_message(seen) or ("" if up else "the control plane is not ready"),
    )
    nodes = Condition(
        type="NodesReady",
        status="False" if missing else "True",
        reason=Reason.WAITING if missing else Reason.READY,
        message=", ".join(missing),
    )
    updated = Condition(
        type="UpToDate",
        status="False" if outdated else "True",
        reason=Reason.ROLLING if outdated else Reason.UP_TO_DATE,
        message="; ".join(outdated),
    )
    ready = _ready(app, nodes if up else control_plane)
    return (ready, control_plane, nodes, updated, *_addons(seen), *_preflight(seen.checks))


def _addons(seen: ObservedTenantCluster) -> Iterable[Condition]:
    """Whether the add-ons run, as the control plane reports; empty if it does not report."""
    conditions = seen.control_plane.status.conditions if seen.control_plane else ()
    return (c for c in conditions if c.type == ADDONS_READY)


def _preflight(checks: Sequence[RegionCheck] | None) -> Iterable[Condition]:
    """Whether the regions can have the missing nodes; none if this was not checked."""
    if checks is None:
        return
    failures = [str(check) for check in checks if check.level is CheckLevel.FAIL]
    yield Condition(
        type="PreflightPassed",
        status="False" if failures else "True",
        reason=Reason.CHECKS_FAILED if failures else Reason.CHECKS_PASSED,
        message=" | ".join(failures)[:MAX_MESSAGE],
    )


def _ready(app: Kubernetes, decisive: Condition) -> Condition:
    if app.deleting:
        message = "" if decisive.status == "True" else decisive.message
        return Condition(type="Ready", status="False", reason=Reason.DELETING, message=message)
    if decisive.status == "True":
        return Condition(type="Ready", status="True", reason=Reason.READY)
    return Condition(type="Ready", status="False", reason=decisive.reason, message=decisive.message)


def _control_plane_message(seen: ObservedTenantCluster) -> str:
    """Its Available condition explains, for one, that a version is not installed."""
    conditions = seen.control_plane.status.conditions if seen.control_plane else ()
    return next((c.message for c in conditions if c.type == "Available"), "")
