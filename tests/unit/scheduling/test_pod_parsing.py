"""Pods as Kubernetes objects: requests, malformed terms, and pods that are turned away."""

from typing import Any

import pytest

from moxwell.scheduling.packing.pod_parsing import node_term, pod_requests
from moxwell.scheduling.packing.pod_validation import NOT_ON_KARPENTER_NODES, pod_refusal
from moxwell.scheduling.well_known_labels import CAPACITY_TYPE, NODE_POOL, LabelRules

RULES = LabelRules()


def container(cpu: str, **rest: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **rest}


@pytest.mark.parametrize(
    "spec, cpu",
    [
        ({"containers": [container("1"), container("500m")]}, 1500),
        ({"containers": [container("1")], "initContainers": [container("3")]}, 3000),
        (
            {
                "containers": [container("1")],
                "initContainers": [container("2", restartPolicy="Always"), container("4")],
            },
            6000,
        ),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [container("1")], "resources": {"requests": {"cpu": "2"}}}, 2000),
        ({"containers": [{"name": "c", "resources": {"limits": {"cpu": "9"}}}]}, 0),
        ({}, 0),
    ],
)
def test_requests_are_what_the_scheduler_counts(spec: dict[str, Any], cpu: int) -> None:
    assert pod_requests({"spec": spec}).get("cpu", 0) == cpu


@pytest.mark.parametrize("infeasible, cpu", [(False, 3000), (True, 2000)])
def test_a_resize_counts_until_it_has_taken_effect(infeasible: bool, cpu: int) -> None:
    conditions = [{"type": "PodResizePending", "reason": "Infeasible"}] if infeasible else []
    status = {
        "conditions": conditions,
        "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
    }
    found = pod_requests({"spec": {"containers": [container("3")]}, "status": status})
    assert found["cpu"] == cpu


@pytest.mark.parametrize(
    "operator, values, text",
    [("Gt", ["x"], "k Exists >=1"), ("Near", ["x"], "k Exists"), ("Lt", [], "k Exists <=-1")],
)
def test_a_malformed_term_is_read_as_karpenter_reads_it(
    operator: str, values: list[str], text: str
) -> None:
    (found,) = node_term([{"key": "k", "operator": operator, "values": values}])
    assert str(found) == text


def required(**expression: Any) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    "spec, refusal",
    [
        ({}, ""),
        ({"nodeSelector": {"team": "red"}}, ""),
        ({"nodeSelector": {"karpenter.sh/x": "1"}}, "using label karpenter.sh/x is not allowed"),
        ({"nodeSelector": {"sub.karpenter.sh/x": "1"}}, "using label sub.karpenter.sh/x"),
        ({"nodeSelector": {CAPACITY_TYPE: "cheap"}}, "no valid values found in [cheap]"),
        ({"nodeSelector": {"team": "-red"}}, "invalid value -red for key team"),
        ({"nodeSelector": {"a b": "red"}}, "key a b is not a qualified name"),
        (
            {"affinity": required(key=NODE_POOL, operator="DoesNotExist")},
            NOT_ON_KARPENTER_NODES,
        ),
        ({"affinity": required(key="n", operator="Gt", values=["0"])}, ""),
        (
            {"affinity": required(key="n", operator="Gt", values=["x"])},
            "must have a single positive integer value",
        ),
        (
            {"affinity": required(key="n", operator="Lt", values=["-1"])},
            "must have a single positive integer value",
        ),
        ({"affinity": required(key="n", operator="In")}, "must have a value defined"),
        ({"affinity": required(key="n", operator="Near")}, "unsupported operator Near"),
    ],
)
def test_pods_that_cannot_be_honored_are_turned_away(spec: dict[str, Any], refusal: str) -> None:
    found = pod_refusal({"spec": spec}, RULES)
    assert refusal in found
    assert bool(refusal) == bool(found)
