"""
NodePools, overlays and buffers that cannot work: refused at admission where Karpenter refuses them,
else a condition names the field. Pods of a good pool wait for none of them.
"""

from typing import Any

import pytest

from moxwell.api.karpenter.capacity import CapacityBuffer, NodeOverlay
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.errors import Invalid
from moxwell.testing.autoscaler_world import DEPLOYMENTS, autoscaler_world, bound_pods, deployment
from moxwell.testing.loop import run_virtual
from moxwell.testing.node_claims import ClaimWorld, pool_object

Json = dict[str, Any]
TYPE = "node.kubernetes.io/instance-type"
WHERE = "spec.template.spec.requirements"


def wanted(*requirements: Json) -> Json:
    return {"template": {"requirements": list(requirements)}}


def one(operator: str, *values: str, key: str = TYPE, **more: Any) -> Json:
    return wanted({"key": key, "operator": operator, "values": list(values), **more})


def budget(**spec: Any) -> Json:
    return {"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "1"} | spec]}}


REFUSED: dict[str, tuple[Json, str]] = {
    "unknown operator": (one("Is", "x"), f"{WHERE}[0].operator"),
    "no values": (one("In"), WHERE),
    "two numbers": (one("Gt", "1", "2", key="a"), WHERE),
    "no number": (one("Gt", "x", key="a"), WHERE),
    "restricted label": (one("In", "x", key="kubernetes.io/hostname"), f"{WHERE}[0].key"),
    "restricted domain": (one("In", "x", key="karpenter.sh/x"), 'domain "karpenter.sh"'),
    "malformed label": (one("In", "x", key="a b"), f"{WHERE}[0].key"),
    "more minValues than values": (one("In", "x", minValues=2), "minValues"),
    "no cron line": (budget(schedule="every day", duration="1h"), "budgets[0].schedule"),
    "no duration": (budget(schedule="@daily"), "'schedule' must be set with 'duration'"),
    "malformed budget": (budget(nodes="-1"), "budgets[0].nodes"),
    "unknown reason": (budget(reasons=["Bored"]), "budgets[0].reasons[0]"),
    "malformed limit": ({"limits": {"cpu": "lots"}}, "spec.limits.cpu"),
    "weight": ({"weight": 101}, "spec.weight"),
    "weight of a static pool": ({"replicas": 1, "weight": 5}, "static NodePools"),
    "malformed lifetime": ({"template": {"expireAfter": "later"}}, "expireAfter"),
    "unknown effect": ({"template": {"taints": [{"key": "a", "effect": "x"}]}}, "taints[0].effect"),
}
CONDITIONS: dict[str, tuple[Json, str]] = {
    "no such month": (
        budget(schedule="* * * 13 *", duration="1h"),
        "spec.disruption.budgets[0].schedule: '* * * 13 *' is not a cron schedule",
    ),
    "less than one node": (
        {"limits": {"cpu": "100m"}},
        "spec.limits.cpu: 100m is less than one node of any type (2)",
    ),
    "contradiction": (
        wanted(
            {"key": TYPE, "operator": "In", "values": ["a"]},
            {"key": TYPE, "operator": "NotIn", "values": ["a"]},
        ),
        f"{WHERE}[1]: no value of {TYPE} satisfies this and requirements[0]",
    ),
}


def test_pools_that_cannot_work() -> None:
    async def story() -> None:
        async with autoscaler_world() as world:
            for spec, text in REFUSED.values():
                with pytest.raises(Invalid) as caught:
                    await world.kube.create(pool_object("bad", **spec), NodePool.resource)
                assert text in str(caught.value)
            for number, (spec, _) in enumerate(CONDITIONS.values()):
                body = pool_object(f"bad-{number}", **spec)
                await world.kube.create(body, NodePool.resource)
            await world.kube.create(deployment("web", 1), DEPLOYMENTS)

            async def bound() -> bool:
                return len(await bound_pods(world)) == 1

            await world.until(bound)
            for number, (_, text) in enumerate(CONDITIONS.values()):
                await says(world, f"bad-{number}", text)

    run_virtual(story())


async def says(world: ClaimWorld, pool: str, text: str) -> None:
    async def test() -> bool:
        found = (await world.kube.get(NodePool, pool)).status.conditions
        valid = [c for c in found if (c.type, c.status) == ("ValidationSucceeded", "False")]
        return any(c.message.startswith(text) for c in valid)

    await world.until(test)


def test_a_pool_without_a_usable_type_says_so() -> None:
    async def story() -> None:
        async with autoscaler_world(**one("In", "no-such-type")) as world:
            await world.until(lambda: world.has_event("NoCompatibleInstanceTypes"))

    run_virtual(story())


OVERLAYS: dict[str, tuple[Json, str]] = {
    "unknown operator": (
        {"requirements": [{"key": TYPE, "operator": "Is", "values": ["x"]}], "price": "1"},
        "spec.requirements[0].operator",
    ),
    "two prices": (
        {"requirements": [], "price": "1", "priceAdjustment": "+1"},
        "cannot set both 'price' and 'priceAdjustment'",
    ),
    "no price": ({"requirements": [], "price": "cheap"}, "spec.price"),
    "weight": ({"requirements": [], "price": "1", "weight": 0}, "spec.weight"),
    "CPU": ({"requirements": [], "capacity": {"cpu": "1"}}, "spec.capacity"),
}
BUFFERS: dict[str, tuple[Json, str]] = {
    "no replicas": ({"podTemplateRef": {"name": "a"}}, "replicas or limits must also be set"),
    "negative": ({"podTemplateRef": {"name": "a"}, "replicas": -1}, "spec.replicas"),
}


def test_overlays_and_buffers_that_cannot_work() -> None:
    async def story() -> None:
        async with autoscaler_world() as world:
            head: Json = {"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay"}
            for spec, text in OVERLAYS.values():
                body = head | {"metadata": {"name": "bad"}, "spec": spec}
                with pytest.raises(Invalid) as caught:
                    await world.kube.create(body, NodeOverlay.resource)
                assert text in str(caught.value)
            head = {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer"}
            meta = {"name": "bad", "namespace": "default"}
            for spec, text in BUFFERS.values():
                body = head | {"metadata": meta, "spec": spec}
                with pytest.raises(Invalid) as caught:
                    await world.kube.create(body, CapacityBuffer.resource)
                assert text in str(caught.value)
            await world.kube.create(head | {"metadata": meta, "spec": {}}, CapacityBuffer.resource)

            async def refused() -> bool:
                found = (await world.kube.get(CapacityBuffer, "bad", "default")).status.conditions
                return any((c.status, c.reason) == ("False", "ResolutionFailed") for c in found)

            await world.until(refused)

    run_virtual(story())
