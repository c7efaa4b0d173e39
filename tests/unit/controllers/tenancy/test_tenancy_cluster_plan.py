"""Tables of the plan of a tenant cluster: what is due, what waits, what is deleted."""

from typing import Any

import msgspec
import pytest

from moxwell.api.capi.core import Cluster
from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.capi.shared import DEPLOYMENT_NAME, TEMPLATE_HASH
from moxwell.api.cozystack import Kubernetes
from moxwell.controllers.tenancy.cluster.autoscaling import MANAGER
from moxwell.controllers.tenancy.cluster.defaults import Defaults, RegionDefaults
from moxwell.controllers.tenancy.cluster.desired_objects import expand
from moxwell.controllers.tenancy.cluster.plan import (
    ObservedTenantCluster,
    TenantClusterPlan,
    plan_cluster,
    unused_objects,
)
from moxwell.runtime.move import Done
from moxwell.scheduling.machine_rollout import template_hash

Json = dict[str, Any]
DEFAULTS = Defaults(regions=(RegionDefaults(name="north", pool="north-nodes"),))
STALLED = {"c-a": 601.0, "c-b": 601.0}


def app(*, deleting: bool = False, **groups: Json) -> Kubernetes:
    meta: Json = {"name": "c", "namespace": "t", "uid": "u", "generation": 1}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return msgspec.convert({"metadata": meta, "spec": {"nodeGroups": groups}}, Kubernetes)


def fields_of(value: Any) -> Json:
    """The managed fields of an applied object whose lists are all atomic."""
    if not isinstance(value, dict):
        return {}
    return {f"f:{name}": fields_of(inner) for name, inner in value.items()}


def applied(obj: Json) -> Json:
    """An object as the API server has it after the controller applied it."""
    fields = {k: v for k, v in fields_of(obj).items() if k not in ("f:apiVersion", "f:kind")}
    entry = {"manager": MANAGER, "operation": "Apply", "fieldsV1": fields}
    meta = {**obj["metadata"], "uid": f"uid-{obj['metadata']['name']}", "managedFields": [entry]}
    return {**obj, "metadata": meta}


def typed(obj: Json, **status: int) -> MachineDeployment:
    count = obj["spec"].get("replicas", 1)
    counts = {"observedGeneration": 1, "replicas": count, "upToDateReplicas": count}
    meta = {**obj["metadata"], "generation": 1}
    found: MachineDeployment = msgspec.convert(
        {**obj, "metadata": meta, "status": {**counts, **status}}, MachineDeployment, strict=False
    )
    return found


def machine_set(deployment: MachineDeployment) -> MachineSet:
    short = template_hash(deployment)
    labels = {DEPLOYMENT_NAME: deployment.name, TEMPLATE_HASH: short}
    spec = {"clusterName": "c", "replicas": deployment.spec.replicas}
    spec["template"] = msgspec.to_builtins(deployment.spec.template)
    meta = {"name": f"{deployment.name}-{short}", "labels": labels}
    found: MachineSet = msgspec.convert({"metadata": meta, "spec": spec}, MachineSet, strict=False)
    return found


def existing(of: Kubernetes, **more: Any) -> ObservedTenantCluster:
    """A cluster as the controller has written it; its groups have no machines yet."""
    objects = [applied(obj) for obj in expand(of, DEFAULTS)]
    deployments = [typed(obj) for obj in objects if obj["kind"] == "MachineDeployment"]
    return ObservedTenantCluster(
        defaults=DEFAULTS,
        objects=tuple(objects),
        deployments=tuple(deployments),
        machine_sets=tuple(machine_set(d) for d in deployments),
        **more,
    )


def plan(cluster: Kubernetes, seen: ObservedTenantCluster) -> TenantClusterPlan:
    found = plan_cluster(cluster, seen)
    assert isinstance(found, TenantClusterPlan)
    return found


def summary(found: TenantClusterPlan) -> list[str]:
    return [
        f"{c.action} {c.kind} {c.name}" + (f" after {c.waits_for}" if c.waits_for else "")
        for c in found.changes
        if "Template" not in c.kind and "HealthCheck" not in c.kind
    ]


def test_a_new_cluster_begins_with_its_first_group() -> None:
    found = plan(
        app(a={"replicas": 1}, b={"replicas": 1}), ObservedTenantCluster(defaults=DEFAULTS)
    )
    assert summary(found) == [
        "create ProxmoxCluster c",
        "create KamajiControlPlane c",
        "create Cluster c",
        "create MachineDeployment c-a",
        "create MachineDeployment c-b after c-a",
    ]
    assert len(found.writes) == 3 + 4
    assert [(g.name, g.created, g.waits_for) for g in found.groups] == [
        ("c-a", 1, ""),
        ("c-b", 1, "c-a"),
    ]


def test_an_unchanged_cluster_has_nothing_to_write() -> None:
    cluster = app(a={"replicas": 0})
    found = plan(cluster, existing(cluster))
    assert (found.changes, found.writes, found.requeue_after) == ((), (), None)


SIZE = {"instanceType": "u1.large"}
CHANGES: dict[str, tuple[Kubernetes, Kubernetes, dict[str, Any], list[str]]] = {
    "a count is due": (
        app(a={"replicas": 0}, b={"replicas": 0}),
        app(a={"replicas": 0}, b={"replicas": 2}),
        {},
        ["update MachineDeployment c-b"],
    ),
    "a rollout waits for a count": (
        app(a={"replicas": 0}, b={"replicas": 0}),
        app(a={"replicas": 0, **SIZE}, b={"replicas": 2}),
        {},
        ["update MachineDeployment c-b", "update MachineDeployment c-a after c-b"],
    ),
    "rollouts one after the other": (
        app(a={"replicas": 0}, b={"replicas": 0}),
        app(a={"replicas": 0, **SIZE}, b={"replicas": 0, **SIZE}),
        {},
        ["update MachineDeployment c-a", "update MachineDeployment c-b after c-a"],
    ),
    "a group without machines blocks the others": (
        app(a={"replicas": 1}, b={"replicas": 0}),
        app(a={"replicas": 1}, b={"replicas": 1}),
        {},
        ["update MachineDeployment c-b after c-a"],
    ),
    "but not after a time without progress": (
        app(a={"replicas": 1}, b={"replicas": 0}),
        app(a={"replicas": 1}, b={"replicas": 1}),
        {"seconds_without_progress": STALLED},
        ["update MachineDeployment c-b"],
    ),
    "removed groups are deleted before others roll": (
        app(a={"replicas": 0}, b={"replicas": 0}),
        app(a={"replicas": 0, **SIZE}),
        {},
        ["update MachineDeployment c-a after c-b", "delete MachineDeployment c-b"],
    ),
}


@pytest.mark.parametrize(("before", "after", "more", "expected"), CHANGES.values(), ids=CHANGES)
def test_what_is_due_and_what_waits(
    before: Kubernetes, after: Kubernetes, more: dict[str, Any], expected: list[str]
) -> None:
    assert summary(plan(after, existing(before, **more))) == expected


def test_a_group_that_becomes_autoscaled_keeps_its_count_within_the_bounds() -> None:
    after = app(a={"minReplicas": 1, "maxReplicas": 2})
    found = plan(after, existing(app(a={"replicas": 3}), seconds_without_progress=STALLED))
    replicas, rest = found.writes
    assert replicas.obj["spec"] == {"replicas": 2}  # type: ignore[union-attr]
    assert "replicas" not in rest.obj["spec"]  # type: ignore[union-attr]
    (group,) = found.groups
    assert (group.before, group.after) == (3, 2)


def test_a_deleted_cluster_deletes_the_cluster_first() -> None:
    before = app(a={"replicas": 1})
    capi = msgspec.convert({"metadata": {"name": "c"}, "spec": {}}, Cluster)
    found = plan(app(deleting=True), existing(before, cluster=capi))
    assert [str(write) for write in found.writes] == ["delete Cluster c"]
    assert "delete MachineDeployment c-a after Cluster c" in summary(found)
    rest = existing(before)
    left = tuple(o for o in rest.objects if o["kind"] == "KubeadmConfigTemplate")
    found = plan(app(deleting=True), ObservedTenantCluster(objects=left))
    assert len(found.writes) == 1
    assert isinstance(plan_cluster(app(deleting=True), ObservedTenantCluster()), Done)


# Templates and groups that nobody uses


def managed(kind: str, name: str) -> Json:
    labels = {"cluster.x-k8s.io/cluster-name": "c", "app.kubernetes.io/managed-by": "moxwell"}
    return {"kind": kind, "metadata": {"name": name, "labels": labels}}


def user(kind: type[Any], template: str) -> Any:
    ref = {"apiGroup": "g", "kind": "ProxmoxMachineTemplate", "name": template}
    inner = {"spec": {"clusterName": "c", "infrastructureRef": ref}}
    return msgspec.convert(
        {"metadata": {"name": "s"}, "spec": {"clusterName": "c", "template": inner}}, kind
    )


OLD = managed("ProxmoxMachineTemplate", "old")
UNUSED: dict[str, tuple[ObservedTenantCluster, list[str]]] = {
    "a wanted template": (
        ObservedTenantCluster(objects=(managed("ProxmoxMachineTemplate", "new"),)),
        [],
    ),
    "a template without users": (ObservedTenantCluster(objects=(OLD,)), ["old"]),
    "a template of a MachineSet": (
        ObservedTenantCluster(objects=(OLD,), machine_sets=(user(MachineSet, "old"),)),
        [],
    ),
    "a template of a MachineDeployment": (
        ObservedTenantCluster(objects=(OLD,), deployments=(user(MachineDeployment, "old"),)),
        [],
    ),
    "a removed group": (
        ObservedTenantCluster(objects=(managed("MachineDeployment", "old"),)),
        ["old"],
    ),
    "an object of somebody else": (
        ObservedTenantCluster(
            objects=({"kind": "MachineDeployment", "metadata": {"name": "c-mine"}},)
        ),
        [],
    ),
}


@pytest.mark.parametrize(("seen", "names"), UNUSED.values(), ids=UNUSED)
def test_unused_objects(seen: ObservedTenantCluster, names: list[str]) -> None:
    found = unused_objects(app(), [("ProxmoxMachineTemplate", "new")], seen)
    assert [o["metadata"]["name"] for o in found] == names
