"""CapacityBuffers: how many virtual pods they stand for, and what becomes of those."""

from typing import Any

import msgspec
import pytest

from moxwell.api.karpenter.capacity import CapacityBuffer
from moxwell.scheduling.packing.buffers import (
    MOST_VIRTUAL_PODS,
    BufferCondition,
    BufferPlacement,
    buffer_key,
    is_virtual,
    nodes_with_buffers,
    placements,
    provisioning_condition,
    resolution,
    virtual_pods,
)
from moxwell.scheduling.packing.solver import Solver
from unit.scheduling.packing_scenes import cluster, node, pod

TEMPLATE = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]
    },
}
POD_TEMPLATE = {"metadata": {"name": "t"}, "template": TEMPLATE}


def buffer(**spec: Any) -> CapacityBuffer:
    meta = {"name": "spare", "namespace": "apps", "uid": "u"}
    return msgspec.convert({"metadata": meta, "spec": spec}, CapacityBuffer)


def deployment(replicas: int | None) -> dict[str, Any]:
    return {"metadata": {"name": "web"}, "spec": {"replicas": replicas, "template": TEMPLATE}}


BY_TEMPLATE = {"podTemplateRef": {"name": "t"}}
BY_WORKLOAD = {"scalableRef": {"kind": "Deployment", "name": "web"}}


@pytest.mark.parametrize(
    ("spec", "found", "replicas"),
    [
        pytest.param({**BY_TEMPLATE, "replicas": 3}, POD_TEMPLATE, 3, id="replicas"),
        pytest.param({**BY_TEMPLATE, "limits": {"cpu": "7"}}, POD_TEMPLATE, 3, id="limits alone"),
        pytest.param(
            {**BY_TEMPLATE, "replicas": 9, "limits": {"cpu": 7, "memory": "2Gi"}},
            POD_TEMPLATE,
            2,
            id="tightest limit",
        ),
        pytest.param(
            {**BY_TEMPLATE, "replicas": 2, "limits": {"example.com/gpu": 1}},
            POD_TEMPLATE,
            2,
            id="limit of something else",
        ),
        pytest.param(
            {**BY_TEMPLATE, "limits": {"example.com/gpu": 1}},
            POD_TEMPLATE,
            0,
            id="only a limit of something else",
        ),
        pytest.param(
            {**BY_WORKLOAD, "percentage": 25}, deployment(10), 3, id="percentage rounds up"
        ),
        pytest.param(
            {**BY_WORKLOAD, "percentage": 1}, deployment(None), 1, id="one replica by default"
        ),
        pytest.param(
            {**BY_WORKLOAD, "percentage": 50, "replicas": 1},
            deployment(8),
            4,
            id="the larger of both",
        ),
        pytest.param({**BY_WORKLOAD, "percentage": 50}, deployment(0), 0, id="scaled to zero"),
        pytest.param(
            {**BY_WORKLOAD, "percentage": 50, "limits": {"cpu": 4}},
            deployment(0),
            2,
            id="scaled to zero with limits",
        ),
        pytest.param(
            {**BY_TEMPLATE, "percentage": 50, "replicas": 2},
            POD_TEMPLATE,
            2,
            id="percentage of a template counts nothing",
        ),
    ],
)
def test_replicas(spec: dict[str, Any], found: dict[str, Any], replicas: int) -> None:
    resolved = resolution(buffer(**spec), found)
    assert resolved.ready == BufferCondition(True, "Resolved", "Pod template resolved successfully")
    assert (resolved.replicas, resolved.template) == (replicas, TEMPLATE)


@pytest.mark.parametrize(
    ("spec", "reason", "text"),
    [
        ({}, "ResolutionFailed", "Neither podTemplateRef nor scalableRef is set"),
        ({**BY_TEMPLATE, "replicas": 1}, "PodTemplateNotFound", 'podtemplates "t" not found'),
        (BY_WORKLOAD, "ScalableRefNotFound", 'deployments.apps "web" not found'),
        (
            {"scalableRef": {"kind": "Job", "name": "j"}},
            "ResolutionFailed",
            'unsupported kind "Job"',
        ),
        (
            {"scalableRef": {"apiGroup": "batch", "kind": "Deployment", "name": "j"}},
            "ResolutionFailed",
            'unsupported scalableRef API group "batch"',
        ),
    ],
)
def test_a_reference_that_leads_nowhere(spec: dict[str, Any], reason: str, text: str) -> None:
    resolved = resolution(buffer(**spec), None)
    assert (resolved.ready, resolved.template) == (BufferCondition(False, reason, text), None)


def test_virtual_pods_are_scheduled_beside_real_ones() -> None:
    spare = virtual_pods(buffer(**BY_TEMPLATE), TEMPLATE, 3, 5.0)
    assert [(p.uid, p.name) for p in spare] == [
        (f"u-{n}", f"capacity-buffer-spare-{n}") for n in (1, 2, 3)
    ]
    assert {buffer_key(p) for p in spare} == {"apps/spare"}
    pods = (pod("real", "3"), *spare)
    assert [is_virtual(p) for p in pods] == [False, True, True, True]
    result = Solver(cluster(nodes=(node("n1", 4), node("n2", 4)))).solve(pods)
    assert placements(pods, result) == {"apps/spare": BufferPlacement(existing=2, new=1)}
    assert nodes_with_buffers(result) == {"n2"}


def test_a_buffer_cannot_ask_for_endless_pods() -> None:
    assert len(virtual_pods(buffer(**BY_TEMPLATE), TEMPLATE, 2**31, 0.0)) == MOST_VIRTUAL_PODS


@pytest.mark.parametrize(
    ("ready", "replicas", "placement", "reason"),
    [
        (False, 3, None, "NotReadyForProvisioning"),
        (True, 0, None, "BufferEmpty"),
        (True, 3, None, None),
        (True, 3, BufferPlacement(existing=3), "FitsExistingCapacity"),
        (True, 3, BufferPlacement(existing=2, new=1), "RequiresNewCapacity"),
        (True, 3, BufferPlacement(existing=2, failed=1), "RequiresNewCapacity"),
        (True, 3, BufferPlacement(existing=2), None),
    ],
)
def test_condition(
    ready: bool, replicas: int, placement: BufferPlacement | None, reason: str | None
) -> None:
    found = provisioning_condition(ready, replicas, placement)
    assert (found and found.reason) == reason
    assert found is None or found.status == (reason == "FitsExistingCapacity")
