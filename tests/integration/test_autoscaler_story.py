"""The autoscaler on virtual time: pods without a node become node claims, machines and nodes."""

from moxwell.api.karpenter.nodepools import NodePool
from moxwell.controllers.karpenter.provider import LaunchFailure
from moxwell.controllers.karpenter.state.intentions import recorded
from moxwell.runtime.manager import Manager
from moxwell.testing.autoscaler_world import (
    DEPLOYMENTS,
    autoscaler_program,
    autoscaler_world,
    bound_pods,
    claims,
    deployment,
    nodes,
    scale,
    start_kubernetes,
)
from moxwell.testing.effect_counter import EffectCounter
from moxwell.testing.loop import run_virtual
from moxwell.testing.node_claims import ClaimWorld, pool_object, start_claim_world
from moxwell.testing.reconcile import run_story


def test_a_deployment_gets_nodes() -> None:
    async def story() -> None:
        async with autoscaler_world() as world:
            await world.kube.create(deployment("web", 6), DEPLOYMENTS)

            async def bound() -> bool:
                return len(await bound_pods(world)) == 6

            await world.until(bound)
            made = await claims(world)
            assert len(made) == len(await nodes(world)) == world.provider.launches
            assert sum(len(recorded(c)) for c in made) == 6
            assert {c.metadata.labels["karpenter.sh/nodepool"] for c in made} == {"default"}
            assert all(c.metadata.owner_references[0].kind == "NodePool" for c in made)
            assert await world.has_event("Nominated", f"nodeclaim/{made[0].metadata.name}")
            await scale(world, "web", 0)

            async def gone() -> bool:
                return not await nodes(world) and not await claims(world)

            await world.until(gone)
            assert not world.provider.machines

    run_virtual(story())


def test_a_used_up_offering_falls_through_to_the_next() -> None:
    async def story() -> None:
        async with autoscaler_world() as world:
            used_up = (LaunchFailure.INSUFFICIENT_CAPACITY, "no host has room")
            world.provider.failing["t1.2VCPU-4GB"] = used_up
            await world.kube.create(deployment("web", 1), DEPLOYMENTS)

            async def bound() -> bool:
                return len(await bound_pods(world)) == 1

            await world.until(bound)
            (made,) = await claims(world)
            assert made.metadata.labels["node.kubernetes.io/instance-type"] == "t1.4VCPU-8GB"

    run_virtual(story())


def test_a_pod_that_never_fits_is_told_and_delays_no_other() -> None:
    async def story() -> None:
        async with autoscaler_world() as world:
            await world.kube.create(deployment("huge", 1, cpu="64"), DEPLOYMENTS)
            await world.kube.create(deployment("web", 1), DEPLOYMENTS)

            async def bound() -> bool:
                return len(await bound_pods(world)) == 1

            async def reported() -> bool:
                return await world.has_event("FailedScheduling", "the nearest type of default is")

            await world.until(bound)
            await world.until(reported)
            assert len(await claims(world)) == 1

    run_virtual(story())


def test_a_static_pool_keeps_its_replicas() -> None:
    async def story() -> None:
        async with autoscaler_world(replicas=2) as world:

            async def has(count: int) -> bool:
                ready = [await world.is_ready(c.metadata.name) for c in await claims(world)]
                pool = await world.kube.get(NodePool, "default")
                return ready == [True] * count and len(await nodes(world)) == pool.status.nodes

            await world.until(lambda: has(2))
            await world.kube.merge(NodePool, "default", {"spec": {"replicas": 1}})
            await world.until(lambda: has(1))

    run_virtual(story())


class PodsGetNodes:
    """Two pods that need a node each; both run in the end."""

    async def world(self) -> ClaimWorld:
        world = await start_claim_world()
        self.kubernetes = await start_kubernetes(world)
        await world.kube.create(pool_object(), NodePool.resource)
        return world

    def program(self, world: ClaimWorld, wires: EffectCounter) -> Manager:
        return autoscaler_program(world, wires)

    async def act(self, world: ClaimWorld) -> None:
        await world.kube.create(deployment("web", 2, cpu="5"), DEPLOYMENTS)

        async def bound() -> bool:
            return len(await bound_pods(world)) == 2

        await world.until(bound)

    async def check(self, world: ClaimWorld) -> None:
        made = await claims(world)
        owners = [uid for c in made for uid in recorded(c)]
        assert len(owners) == len(set(owners)) == 2
        assert world.provider.launches == len(made) == len(await nodes(world)) <= 2
        self.kubernetes.cancel()


def test_a_kill_after_a_creation_makes_no_second_claim_for_the_same_pods() -> None:
    plain = run_virtual(run_story(PodsGetNodes(), (), quiet_seconds=30.0))
    created = [
        n for n, e in enumerate(plain.effects, 1) if e.startswith("POST") and "nodeclaims" in e
    ]
    assert len(created) == 2, plain.effects
    for number in created:
        run_virtual(run_story(PodsGetNodes(), (number,), quiet_seconds=30.0))
