"""Nodes of a running Karpenter are taken over without drift, and given back; on virtual time."""

import asyncio
import random
from typing import Any

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.controllers.karpenter.claim_template import VERSION
from moxwell.controllers.karpenter.names import HASH, HASH_VERSION
from moxwell.controllers.karpenter.setup import add_autoscaler
from moxwell.runtime.manager import Manager, assemble
from moxwell.testing.autoscaler_world import (
    DEPLOYMENTS,
    bound_pods,
    claims,
    deployment,
    renew_leases,
    run_pods,
    start_kubernetes,
)
from moxwell.testing.loop import run_virtual
from moxwell.testing.node_claims import ClaimWorld, pool_object, start_claim_world
from moxwell.testing.reconcile import SETTINGS

THEIRS = {HASH: "5216829431049532163", HASH_VERSION: "v3"}  # as Karpenter v1.14 stamps them
QUIET_SECONDS = 1_200


async def running(world: ClaimWorld, seed: int) -> tuple[Manager, asyncio.Task[None]]:
    """One life of the autoscaler."""
    runtime = assemble(world.store, world.clock, SETTINGS, rng=random.Random(seed))
    add_autoscaler(runtime, world.clock, world.provider)
    for name, loop in (
        ("kubelets", world.kubelets),
        ("pods", lambda: run_pods(world)),
        ("leases", lambda: renew_leases(world)),
    ):
        runtime.manager.add_loop(f"test.{name}", loop)
    return runtime.manager, asyncio.create_task(runtime.manager.run())


async def stamp(world: ClaimWorld, annotations: dict[str, str]) -> None:
    """Write what a Karpenter has written: its hashes on the pool and on all claims."""
    change: dict[str, Any] = {"metadata": {"annotations": annotations}}
    await world.kube.merge(NodePool, "default", change)
    for claim in await claims(world):
        await world.kube.merge(NodeClaim, claim.metadata.name, change)


async def drifted(world: ClaimWorld) -> list[str]:
    return [
        c.metadata.name
        for c in await claims(world)
        if any(k.type == "Drifted" and k.status == "True" for k in c.status.conditions)
    ]


def test_claims_with_hashes_of_karpenter_are_restamped_and_do_not_drift() -> None:
    async def story() -> None:
        world = await start_claim_world()
        kubernetes = await start_kubernetes(world)
        manager, life = await running(world, 1)
        drift_only = {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}
        await world.kube.create(pool_object(disruption=drift_only), NodePool.resource)
        await world.kube.create(deployment("web", 8, cpu="1500m"), DEPLOYMENTS)

        async def bound() -> bool:
            return len(await bound_pods(world)) == 8

        await world.until(bound)
        manager.stop()
        await life
        await stamp(world, THEIRS)
        before = {c.metadata.name for c in await claims(world)}
        manager, life = await running(world, 2)

        async def restamped() -> bool:
            marks = [c.metadata.annotations for c in await claims(world)]
            return all(m[HASH_VERSION] == VERSION and m[HASH] != THEIRS[HASH] for m in marks)

        await world.until(restamped)
        await world.clock.sleep(QUIET_SECONDS)
        assert {c.metadata.name for c in await claims(world)} == before
        assert await drifted(world) == []
        assert len(await bound_pods(world)) == 8
        # A change of the template drifts them as ever.
        labels = {"spec": {"template": {"metadata": {"labels": {"team": "a"}}}}}
        await world.kube.merge(NodePool, "default", labels)

        async def replaced() -> bool:
            return not before & {c.metadata.name for c in await claims(world)}

        await world.until(replaced, 7200)
        manager.stop()
        await life
        kubernetes.cancel()
        await asyncio.gather(kubernetes, return_exceptions=True)
        await world.store.stop()

    run_virtual(story())
