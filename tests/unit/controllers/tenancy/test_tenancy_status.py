"""The conditions of a tenant cluster."""

from typing import Any

import msgspec
import pytest

from moxwell.api.capi.controlplane import KamajiControlPlane
from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.cozystack import Kubernetes
from moxwell.controllers.tenancy.cluster.describe import describe_cluster
from moxwell.controllers.tenancy.cluster.diff import ObjectChange
from moxwell.controllers.tenancy.cluster.plan import ObservedTenantCluster, TenantClusterPlan
from moxwell.controllers.tenancy.cluster.rollout_order import WaitingGroup

APP = msgspec.convert(
    {"metadata": {"name": "c", "namespace": "t", "generation": 3}, "spec": {}},
    Kubernetes,
    strict=False,
)
CONTROL_PLANE = msgspec.convert(
    {"metadata": {"name": "c"}, "spec": {}, "status": {"ready": True}},
    KamajiControlPlane,
    strict=False,
)


def group(**status: int) -> MachineDeployment:
    counts = {"observedGeneration": 2, "replicas": 2, "readyReplicas": 2, "upToDateReplicas": 2}
    spec = {
        "clusterName": "c",
        "replicas": 2,
        "selector": {"matchLabels": {}},
        "template": {"spec": {"clusterName": "c", "bootstrap": {}}},
    }
    meta = {"name": "c-a", "namespace": "t", "generation": 2}
    tree: dict[str, Any] = {"metadata": meta, "spec": spec, "status": counts | status}
    return msgspec.convert(tree, MachineDeployment)


MESSAGES: dict[str, tuple[MachineDeployment, str]] = {
    "all there": (group(), ""),
    "some missing": (group(readyReplicas=1), "c-a: 1 of 2 nodes ready"),
    "its change is not seen yet, so its counts are of before": (
        group(observedGeneration=1),
        "c-a: its new spec is not observed yet",
    ),
    "a rollout with as many ready as asked for": (
        group(replicas=3, upToDateReplicas=1),
        "c-a: rolling, 1 of 2 nodes up to date",
    ),
    "one that leaves": (group(replicas=3, upToDateReplicas=3), "c-a: 1 of 3 nodes to be deleted"),
}


@pytest.mark.parametrize(("deployment", "message"), MESSAGES.values(), ids=MESSAGES)
def test_nodes_are_ready_when_the_status_is_of_the_current_spec(
    deployment: MachineDeployment, message: str
) -> None:
    seen = ObservedTenantCluster(control_plane=CONTROL_PLANE, deployments=(deployment,))
    status = describe_cluster(APP, seen, TenantClusterPlan())
    found = {c.type: c for c in status.conditions}
    assert found["NodesReady"].message == message
    assert found["Ready"].status == ("False" if message else "True")


def condition(seen: ObservedTenantCluster, plan: TenantClusterPlan, type_: str) -> tuple[str, str]:
    found = {c.type: c for c in describe_cluster(APP, seen, plan).conditions}[type_]
    return found.status, found.message


PLANS: dict[str, tuple[TenantClusterPlan, str, str]] = {
    "nothing changes": (TenantClusterPlan(), "", ""),
    "a count that is being written": (
        TenantClusterPlan(
            changes=(ObjectChange("update", "MachineDeployment", "c-a", ("spec.replicas",)),)
        ),
        "c-a: spec.replicas changes",
        "",
    ),
    "a template that is being written": (
        TenantClusterPlan(
            changes=(ObjectChange("update", "MachineDeployment", "c-a", ("spec.template.x",)),)
        ),
        "c-a: spec.template.x changes",
        "rolling to new templates: c-a",
    ),
    "a new group": (
        TenantClusterPlan(changes=(ObjectChange("create", "MachineDeployment", "c-b"),)),
        "c-b is being created",
        "",
    ),
    "a group that waits with its count": (
        TenantClusterPlan(waiting=(WaitingGroup("c-b", "c-a", scales=True),)),
        "c-b waits for c-a",
        "c-b waits for c-a",
    ),
    "a rollout that waits": (
        TenantClusterPlan(waiting=(WaitingGroup("c-b", "the control plane", scales=False),)),
        "",
        "c-b waits for the control plane",
    ),
    "a health check changes": (
        TenantClusterPlan(
            changes=(ObjectChange("update", "MachineHealthCheck", "c-a", ("spec",)),)
        ),
        "",
        "",
    ),
}


@pytest.mark.parametrize(("plan", "nodes", "up_to_date"), PLANS.values(), ids=PLANS)
def test_conditions_count_what_is_only_being_written(
    plan: TenantClusterPlan, nodes: str, up_to_date: str
) -> None:
    seen = ObservedTenantCluster(control_plane=CONTROL_PLANE, deployments=(group(),))
    assert condition(seen, plan, "NodesReady") == ("False" if nodes else "True", nodes)
    expected = ("False" if up_to_date else "True", up_to_date)
    assert condition(seen, plan, "UpToDate") == expected
