"""The example manifests of karpenter-provider-proxmox on the embedded API; see the support."""

import asyncio
from contextlib import suppress

import pytest
import yaml

from moxwell.controllers.karpenter.setup import AutoscalerSettings
from moxwell.testing import machine_stories
from moxwell.testing.autoscaler_program import AutoscalerProgram
from moxwell.testing.autoscaler_scenes import ScaledEnvironment
from moxwell.testing.embedded_environment import create_environment
from moxwell.testing.karpenter_environment import add_cluster_api, karpenter_environment
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_stories import StoryEnvironment
from moxwell.testing.two_regions import WORLD
from support.provider_examples import EXAMPLES, every_example_ends_in_nodes, example_world

pytestmark = pytest.mark.skipif(
    not EXAMPLES.exists(), reason="the shared manifests of the provider are not here"
)


async def publish_ca(stage: StoryEnvironment) -> None:
    """The CA of the API in ``kube-system``; the API server of these tests serves without TLS."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kube-root-ca.crt", "namespace": "kube-system"},
        "data": {"ca.crt": stage.ca.decode()},
    }
    await stage.apply(yaml.safe_dump(body))


def test_every_example_of_the_provider_ends_in_nodes() -> None:
    async def story() -> None:
        world = await create_environment(example_world(WORLD))
        await machine_stories.begin(world.stage, replicas=0)
        await publish_ca(world.stage)
        program = AutoscalerProgram(
            world.store, world.clock, world.engine, AutoscalerSettings(), add_cluster_api
        )
        running = asyncio.create_task(program.run())
        try:
            await every_example_ends_in_nodes(ScaledEnvironment(world.stage, program.reasons))
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            await world.close()

    run_virtual(story())


def test_every_example_is_accepted_as_it_is() -> None:
    async def story() -> None:
        async with karpenter_environment() as env:
            count = 0
            for path in sorted(EXAMPLES.glob("*.yaml")):
                if "{{" in (text := path.read_text()):
                    continue  # a Go template
                objects = [o for o in yaml.safe_load_all(text) if o and "apiVersion" in o]
                await env.stage.apply(yaml.safe_dump_all(objects))
                count += len(objects)
            assert count >= 5

    run_virtual(story())
