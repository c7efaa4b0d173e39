"""Limits of the autoscaler on virtual time: pods per pass, and the quota of a tenant."""

import asyncio
import json
import random
from typing import Any

import msgspec

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.kinds import Resource
from moxwell.app.tenant_quota import TenantQuota
from moxwell.controllers.karpenter.decisions import DecisionTimeout, ThreadDecisions
from moxwell.controllers.karpenter.setup import AutoscalerSettings, add_autoscaler
from moxwell.controllers.karpenter.state.snapshots import ScaledClusterView
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.manager import assemble
from moxwell.scheduling.packing.cluster import ClusterSnapshot
from moxwell.scheduling.quota import QUOTA, tenant_namespaces
from moxwell.testing.autoscaler_world import (
    DEPLOYMENTS,
    autoscaler_world,
    bound_pods,
    claims,
    deployment,
    nodes,
    run_pods,
    start_kubernetes,
)
from moxwell.testing.loop import run_virtual
from moxwell.testing.node_claims import ClaimWorld, pool_object, start_claim_world
from moxwell.testing.reconcile import SETTINGS

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
GIB = 1 << 30


def test_a_pass_decides_about_a_limited_number_of_pods_and_says_so() -> None:
    async def story() -> None:
        async with autoscaler_world(AutoscalerSettings(max_batch_pods=3)) as world:
            await world.kube.create(deployment("never", 5, cpu="64"), DEPLOYMENTS)

            async def limited() -> bool:
                text = "pending pods wait: a pass decides about 3 at a time"
                return await world.has_event("BatchLimited", text)

            await world.until(limited)
            await world.kube.create(deployment("web", 4), DEPLOYMENTS)

            async def bound() -> bool:
                return len(await bound_pods(world)) == 4

            await world.until(bound)  # the pods that never fit do not keep them waiting

    run_virtual(story())


class SlowDecisions(ThreadDecisions):
    """Ends decisions about more than some pods."""

    def __init__(self) -> None:
        super().__init__(10_000)  # on the event loop
        self.refused: list[int] = []

    async def run(self, decide: Any, size: int) -> Any:
        if size > 150:
            self.refused.append(size)
            raise DecisionTimeout(f"a decision about {size} pods took too long")
        return await super().run(decide, size)


async def _run(world: ClaimWorld, **parts: Any) -> asyncio.Task[None]:
    """The autoscaler with parts of a test's own."""
    runtime = assemble(world.store, world.clock, SETTINGS, rng=random.Random(1))
    add_autoscaler(runtime, world.clock, world.provider, **parts)
    runtime.manager.add_loop("test.kubelets", world.kubelets)
    runtime.manager.add_loop("test.pods", lambda: run_pods(world))
    await world.kube.create(pool_object(), NodePool.resource)
    return asyncio.create_task(runtime.manager.run())


def test_a_decision_that_takes_too_long_makes_the_next_ones_smaller() -> None:
    async def story() -> None:
        world = await start_claim_world()
        kubernetes = await start_kubernetes(world)
        slow = SlowDecisions()
        life = await _run(world, decisions=slow)
        await world.kube.create(deployment("web", 240, cpu="100m", memory="16Mi"), DEPLOYMENTS)

        async def bound() -> bool:
            return len(await bound_pods(world)) >= 100

        await world.until(bound)
        assert slow.refused[0] >= 240
        assert await world.has_event("BatchLimited", "took too long")
        for task in (life, kubernetes):
            task.cancel()
        await asyncio.gather(life, kubernetes, return_exceptions=True)

    run_virtual(story())


def test_node_pools_keep_to_the_quota_of_the_tenant() -> None:
    async def story() -> None:
        world = await start_claim_world()
        kubernetes = await start_kubernetes(world)

        def quota(view: ScaledClusterView) -> dict[str, int]:
            used = sum(n.capacity["cpu"] for n in view.cluster.nodes)
            return {"cpu": 6_000 - used}

        life = await _run(world, quota=quota)
        await world.kube.create(pool_object("second", weight=5), NodePool.resource)
        await world.kube.create(deployment("web", 12), DEPLOYMENTS)

        async def reported() -> bool:
            found = await world.has_event("FailedScheduling", "the quota of the tenant leaves")
            limited = await world.has_event("FailedScheduling", "limit")
            return found or limited

        await world.until(reported)
        await world.clock.sleep(120)
        sizes = [int(n["status"]["capacity"]["cpu"]) for n in await nodes(world)]
        assert 0 < sum(sizes) <= 6
        assert len(await claims(world)) == len(sizes)
        for task in (life, kubernetes):
            task.cancel()
        await asyncio.gather(life, kubernetes, return_exceptions=True)

    run_virtual(story())


def _namespace(name: str, quota: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": {QUOTA: quota}}}


def test_the_quota_counts_all_machines_of_the_tenant_and_of_those_below() -> None:
    spaces: Cache[Any] = Cache(NAMESPACES)
    machines: Cache[ProxmoxMachine] = Cache(ProxmoxMachine)
    spaces.put(_namespace("tenant-a", json.dumps({"cpu": "10", "memory": "20Gi", "nodes": "3"})))
    spaces.put(_namespace("tenant-a-b", json.dumps({"cpu": "4"})))
    spaces.put(_namespace("tenant-c", "{broken"))
    for space, name in (("tenant-a", "m-1"), ("tenant-a-b", "m-2"), ("tenant-x", "m-3")):
        meta, spec = {"name": name, "namespace": space}, {"numCores": 2, "memoryMiB": 4096}
        body = {"metadata": meta, "spec": spec}
        machines.put(msgspec.convert(body, ProxmoxMachine))
    found, view = TenantQuota(spaces, machines), ScaledClusterView(ClusterSnapshot(()))
    assert found.left(Key("tenant-a", "one"), view) == {
        "cpu": 6_000,
        "memory": 12 * GIB * 1000,
        "nodes": 1_000,
    }
    assert found.left(Key("tenant-a-b", "one"), view)["cpu"] == 2_000
    assert found.left(Key("tenant-c", "one"), view) == {"cpu": 0, "memory": 0, "nodes": 0}
    assert found.left(Key("other", "one"), view) == {}
    assert tenant_namespaces("tenant-a-b") == ("tenant-a-b", "tenant-a")
