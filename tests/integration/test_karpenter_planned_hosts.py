"""Pending pods to node claims to guests: a guest is made on the host that packing chose."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.kinds import as_dict
from moxwell.controllers.karpenter.names import PLANNED_HOST, PLANNED_SIZE
from moxwell.controllers.karpenter.options import PackingMode
from moxwell.controllers.karpenter.provider import InstanceState, LaunchFailure, NodeInstance
from moxwell.controllers.karpenter.provisioning.plan import ProvisioningPlan, plan_provisioning
from moxwell.controllers.karpenter.state.objects import ClusterObjects
from moxwell.controllers.karpenter.state.pods import PodParser
from moxwell.controllers.karpenter.state.pools import label_rules
from moxwell.controllers.karpenter.state.snapshots import build_view
from moxwell.scheduling.inventory_model import MIB
from moxwell.scheduling.well_known_labels import HOSTNAME, REGION, ZONE
from moxwell.testing.karpenter_environment import (
    KarpenterEnvironment,
    karpenter_environment,
    node_claim,
)
from moxwell.testing.loop import run_virtual
from support.karpenter_objects import READY, pod

APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}
        ]
    }
}


async def planned(env: KarpenterEnvironment, mode: PackingMode, count: int) -> ProvisioningPlan:
    """The plan for pods that each need a node, over what the hosts offer now."""
    pool = msgspec.convert(as_dict(await env.pool()) | {"status": {"conditions": READY}}, NodePool)
    types = {"default": await env.provider.instance_types(pool)}
    pods = tuple(apart(f"web-{n}") for n in range(count))
    objects = ClusterObjects(pools=(pool,), pods=pods)
    parsed = PodParser(label_rules()).parse(objects.pods, objects.storage)
    return plan_provisioning(build_view(objects, parsed, types, 0.0), mode)


def apart(name: str) -> dict[str, Any]:
    return pod(name, metadata={"labels": {"app": "web"}}, spec={"affinity": APART})


async def launched(env: KarpenterEnvironment, claim: NodeClaim) -> NodeInstance:
    async def ready() -> NodeInstance | None:
        found = await env.provider.instance(claim)
        if found is None:
            await env.provider.launch(claim)
        return found if found and found.state is InstanceState.LAUNCHED else None

    found: NodeInstance = await env.stage.until(f"{claim.name} is launched", ready)
    return found


def test_guests_are_made_on_the_hosts_that_packing_chose() -> None:
    async def story() -> None:
        async with karpenter_environment() as env:
            plan = await planned(env, PackingMode.OPTIMISE, 4)
            hosts = [claim.metadata.annotations[PLANNED_HOST] for claim, _ in plan.claims]
            assert len(set(hosts)) == len(hosts) == 4
            assert {host.partition("/")[0] for host in hosts} == {"north", "south"}
            for claim, _ in plan.claims:
                made = await env.kube.create(claim)
                found = await launched(env, made)
                at = f"{found.labels[REGION]}/{found.labels[ZONE]}"
                assert at == made.metadata.annotations[PLANNED_HOST]

    run_virtual(story())


def test_exact_packing_plans_hosts_afterwards() -> None:
    async def story() -> None:
        async with karpenter_environment() as env:
            plan = await planned(env, PackingMode.EXACT, 2)
            hosts = [claim.metadata.annotations[PLANNED_HOST] for claim, _ in plan.claims]
            assert len(set(hosts)) == len(hosts) == 2

    run_virtual(story())


async def plan_all_hosts(env: KarpenterEnvironment) -> None:
    """Create node claims whose plans use up every host."""
    types = await env.provider.instance_types(await env.pool())
    rooms = {str(o.room.key): o.room for t in types for o in t.offerings if o.room}
    for number, (host, room) in enumerate(sorted(rooms.items())):
        size = json.dumps({"cpus": room.cpus, "memoryMiB": room.memory_bytes // MIB})
        body = node_claim(f"planned-{number}", {"cpu": "1"})
        body["metadata"]["annotations"] = {PLANNED_HOST: host, PLANNED_SIZE: size}
        await env.kube.create(body, NodeClaim.resource)


@pytest.mark.parametrize("older", [True, False])
def test_a_launch_leaves_the_room_of_older_plans_free(older: bool) -> None:
    async def story() -> None:
        async with karpenter_environment() as env:
            own = await env.claim("own") if older else None
            await asyncio.sleep(2)
            await plan_all_hosts(env)
            await asyncio.sleep(2)
            own = own or await env.claim("own")
            if older:
                assert (await launched(env, own)).state is InstanceState.LAUNCHED
                return
            await env.provider.launch(own)
            found = await env.provider.instance(own)
            assert found is not None
            assert found.failure is LaunchFailure.INSUFFICIENT_CAPACITY

    run_virtual(story())
