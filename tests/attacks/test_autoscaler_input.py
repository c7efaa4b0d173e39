"""Objects of the autoscaler that cannot work are refused, or say which field is wrong."""

from typing import Any

import pytest

from moxwell.api.karpenter.capacity import CapacityBuffer, NodeOverlay
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.errors import MoxwellError
from moxwell.testing.autoscaler_world import DEPLOYMENTS, autoscaler_world, bound_pods, deployment
from moxwell.testing.loop import run_virtual
from moxwell.testing.node_claims import pool_object, start_claim_world

Json = dict[str, Any]


def needs(*requirements: Json) -> Json:
    return pool_object(template={"requirements": list(requirements)})


def disrupted(**budget: Any) -> Json:
    return pool_object(disruption={"consolidateAfter": "0s", "budgets": [budget]})


def other(kind: Any, **spec: Any) -> Json:
    meta = {"name": "x", "namespace": "default"} if kind is CapacityBuffer else {"name": "x"}
    resource = kind.resource
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta} | {
        "spec": spec
    }


def one(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, "values": list(values)}


REFUSED: list[tuple[str, Any, Json, str]] = [
    ("unknown operator", NodePool, needs(one("a", "Is", "b")), "operator"),
    ("restricted label", NodePool, needs(one("karpenter.sh/x", "In", "b")), "restricted"),
    ("restricted pool label", NodePool, needs(one("karpenter.sh/nodepool", "In", "b")), "nodepool"),
    ("In without values", NodePool, needs(one("a", "In")), "must have a value"),
    ("Gt with two values", NodePool, needs(one("a", "Gt", "1", "2")), "single positive integer"),
    ("no cron line", NodePool, disrupted(schedule="sometimes", duration="1h"), "schedule"),
    ("a schedule alone", NodePool, disrupted(schedule="* * * * *"), "duration"),
    ("price and adjustment", NodeOverlay,
     other(NodeOverlay, requirements=[], price="1", priceAdjustment="+1"), "priceAdjustment"),
    ("capacity of CPU", NodeOverlay,
     other(NodeOverlay, requirements=[], capacity={"cpu": "1"}), "restricted"),
    ("an adjustment without a sign", NodeOverlay,
     other(NodeOverlay, requirements=[], priceAdjustment="1"), "priceAdjustment"),
    ("two references", CapacityBuffer,
     other(CapacityBuffer, podTemplateRef={"name": "a"}, replicas=1,
           scalableRef={"kind": "Deployment", "name": "a"}), "not both"),
    ("a template without a size", CapacityBuffer,
     other(CapacityBuffer, podTemplateRef={"name": "a"}), "replicas or limits"),
    ("negative replicas", CapacityBuffer,
     other(CapacityBuffer, podTemplateRef={"name": "a"}, replicas=-1), "replicas"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "body", "text"), [c[1:] for c in REFUSED],
                         ids=[c[0] for c in REFUSED])  # fmt: skip
def test_admission_refuses(kind: Any, body: Json, text: str) -> None:
    async def story() -> None:
        world = await start_claim_world()
        with pytest.raises(MoxwellError) as caught:
            await world.kube.create(body, kind.resource)
        assert text in str(caught.value)
        await world.store.stop()

    run_virtual(story())


SAID: list[tuple[str, Json, str]] = [
    ("impossible requirements", needs(one("t", "In", "a"), one("t", "In", "b")),
     "spec.template.spec.requirements[1]"),
    ("an hour that is none", disrupted(schedule="* 25 * * *", duration="1h"),
     "spec.disruption.budgets[0].schedule"),
    ("limits below one node", pool_object(limits={"memory": "1Gi"}), "spec.limits.memory"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "field"), [c[1:] for c in SAID], ids=[c[0] for c in SAID])
def test_a_condition_names_the_field_and_other_pools_go_on(body: Json, field: str) -> None:
    async def story() -> None:
        async with autoscaler_world() as world:
            body["metadata"]["name"] = "wrong"
            await world.kube.create(body, NodePool.resource)
            await world.kube.create(deployment("web", 2), DEPLOYMENTS)

            async def said() -> bool:
                found = (await world.kube.get(NodePool, "wrong")).status.conditions
                return any(
                    c.type == "ValidationSucceeded" and c.status == "False" and field in c.message
                    for c in found
                )

            async def bound() -> bool:
                return len(await bound_pods(world)) == 2

            await world.until(said)
            await world.until(bound)

    run_virtual(story())
