"""ResourceQuota usage, LimitRange defaults, and concurrent writes against a quota."""

import asyncio
from typing import Any

import pytest

from moxwell.api.quantity import Quantity
from moxwell.embedded.apiserver.quota import limit_ranges, resource_list, usage
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.testing.api_calls import CM, ApiClient, configmap

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
Body = dict[str, Any]


def pod(*containers: Body, phase: str = "", **spec: Any) -> Body:
    found: Body = {"metadata": {}, "spec": {"containers": list(containers), **spec}}
    return {**found, "status": {"phase": phase}} if phase else found


def api(cpu: str, memory: str = "", **more: Any) -> Body:
    requests = {"cpu": cpu, **({"memory": memory} if memory else {})}
    return {"name": "c", "resources": {"requests": requests}, **more}


@pytest.mark.parametrize(
    "group_resource, obj, used",
    [
        pytest.param("secrets", {}, {"count/secrets": "1", "secrets": "1"}, id="a secret"),
        pytest.param(
            "leases.coordination.k8s.io",
            {},
            {"count/leases.coordination.k8s.io": "1"},
            id="a lease",
        ),
        pytest.param(
            "pods",
            pod(api("500m", "1Gi"), api("1500m", "512Mi")),
            {"count/pods": "1", "pods": "1", "cpu": "2", "requests.cpu": "2"}
            | {"memory": "1536Mi", "requests.memory": "1536Mi"},
            id="two containers",
        ),
        pytest.param(
            "pods",
            pod(api("1"), initContainers=[api("3"), api("1", restartPolicy="Always"), api("1")]),
            {"count/pods": "1", "pods": "1", "cpu": "3", "requests.cpu": "3"},
            id="greedy before, a sidecar beside",
        ),
        pytest.param(
            "pods",
            pod(api("1"), overhead={"cpu": "250m"}),
            {"count/pods": "1", "pods": "1", "cpu": "1250m", "requests.cpu": "1250m"},
            id="the overhead of a runtime",
        ),
        pytest.param(
            "pods", pod(api("1"), phase="Failed"), {"count/pods": "1"}, id="a pod that ended"
        ),
        pytest.param(
            "services",
            {"spec": {"type": "LoadBalancer", "ports": [{}, {}]}},
            {"count/services": "1", "services": "1", "services.nodeports": "2"}
            | {"services.loadbalancers": "1"},
            id="a load balancer",
        ),
    ],
)
def test_usage_of_an_object(group_resource: str, obj: Body, used: dict[str, str]) -> None:
    found = resource_list.to_strings(usage.usage_of(group_resource, obj))
    assert found == dict(sorted(used.items()))


@pytest.mark.parametrize(
    "parts, total",
    [
        (["0", "1Gi", "1G"], "2073741824"),
        (["500m", "0.5"], "1"),
        (["1Ki", "1Ki"], "2Ki"),
        ([], "0"),
    ],
    ids=["the first that is not zero gives the form", "halves", "binary", "nothing"],
)
def test_sums_are_written_as_go_writes_them(parts: list[str], total: str) -> None:
    found = resource_list.sum_of([{"x": Quantity.parse(part)} for part in parts])
    assert str(found.get("x", resource_list.ZERO)) == total


def test_limit_range_defaults_keep_explicit_values() -> None:
    made = pod({"name": "c", "resources": {"limits": {"cpu": "2"}}}, initContainers=[{"name": "i"}])
    limit_ranges.apply_defaults(made, {"default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}})
    message = made["metadata"]["annotations"][limit_ranges.ANNOTATION]
    assert message == (
        "LimitRanger plugin set: cpu request for container c; cpu request for init container i; "
        "cpu limit for init container i"
    )
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "2"}


async def test_concurrent_writes_cannot_exceed_a_quota() -> None:
    async with EmbeddedApiServer() as api_server:
        asking = ApiClient(api_server)
        hard = {"spec": {"hard": {"configmaps": "5"}}}
        head = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
        assert (await asking.post(QUOTAS, head | hard)).status == 201
        there = len((await asking.get(CM)).object["items"])
        answers = await asyncio.gather(*(asking.post(CM, configmap(f"c{n}")) for n in range(20)))
        codes = [answer.status for answer in answers]
        assert codes.count(201) == 5 - there
        assert set(codes) == {201, 403}
        error_response = next(a for a in answers if a.status == 403).object["message"]
        assert "exceeded quota: q, requested: configmaps=1, used: configmaps=5, " in error_response
