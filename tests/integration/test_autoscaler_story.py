"""The autoscaler on virtual time: pods without a node become node claims, machines and nodes."""

from moxwell.controllers.karpenter.state.intentions import recorded
from moxwell.testing.autoscaler_world import (
    DEPLOYMENTS,
    autoscaler_world,
    bound_pods,
    claims,
    deployment,
    nodes,
)
from moxwell.testing.loop import run_virtual


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

    run_virtual(story())
