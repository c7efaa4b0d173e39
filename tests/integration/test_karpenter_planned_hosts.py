"""Pending pods to node claims to guests: a guest is made on the host that packing chose."""

from typing import Any

import msgspec

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.kinds import as_dict
from moxwell.controllers.karpenter.names import PLANNED_HOST
from moxwell.controllers.karpenter.options import PackingMode
from moxwell.controllers.karpenter.provider import InstanceState, NodeInstance
from moxwell.controllers.karpenter.provisioning.plan import ProvisioningPlan, plan_provisioning
from moxwell.controllers.karpenter.state.objects import ClusterObjects
from moxwell.controllers.karpenter.state.pods import PodParser
from moxwell.controllers.karpenter.state.pools import label_rules
from moxwell.controllers.karpenter.state.snapshots import build_view
from moxwell.scheduling.well_known_labels import HOSTNAME, REGION, ZONE
from moxwell.testing.karpenter_environment import KarpenterEnvironment, karpenter_environment
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


def test_exact_packing_leaves_the_host_to_the_launch() -> None:
    async def story() -> None:
        async with karpenter_environment() as env:
            plan = await planned(env, PackingMode.EXACT, 2)
            assert len(plan.claims) == 2
            assert not any(PLANNED_HOST in c.metadata.annotations for c, _ in plan.claims)

    run_virtual(story())
