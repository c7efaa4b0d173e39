"""What a tenant cluster says of its nodes."""

from typing import Any

import msgspec
import pytest

from moxwell.api.capi.controlplane import KamajiControlPlane
from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.cozystack import Kubernetes
from moxwell.controllers.tenancy.cluster import plan

APP = msgspec.convert(
    {"metadata": {"name": "c", "namespace": "t", "generation": 3}, "spec": {}},
    Kubernetes,
    strict=False,
)
PLANE = msgspec.convert(
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


SAID: dict[str, tuple[MachineDeployment, str]] = {
    "all there": (group(), ""),
    "some missing": (group(readyReplicas=1), "c-a: 1 of 2 ready"),
    "its change is not seen yet, so its counts are of before": (
        group(observedGeneration=1),
        "c-a: its change is being taken up",
    ),
    "a rollout with as many ready as asked for": (
        group(replicas=3, upToDateReplicas=1),
        "c-a: rolling, 1 of 2 are new",
    ),
    "one that leaves": (group(replicas=3, upToDateReplicas=3), "c-a: 1 of 3 still to leave"),
}


@pytest.mark.parametrize(("deployment", "said"), SAID.values(), ids=SAID)
def test_nodes_are_ready_when_the_group_says_so_of_its_spec(
    deployment: MachineDeployment, said: str
) -> None:
    status = plan.describe(APP, plan.Seen(plane=PLANE, deployments=(deployment,)))
    found = {c.type: c for c in status.conditions}
    assert found["NodesReady"].message == said
    assert found["Ready"].status == ("False" if said else "True")
