"""The scenes of the autoscaler over Proxmox, on the embedded API and virtual time."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest

from moxwell.controllers.karpenter.setup import AutoscalerSettings
from moxwell.testing import machine_stories
from moxwell.testing.autoscaler_program import AutoscalerProgram, repairing
from moxwell.testing.autoscaler_scenes import ScaledEnvironment, run_scenes
from moxwell.testing.embedded_environment import create_environment
from moxwell.testing.karpenter_environment import MANIFEST, add_cluster_api
from moxwell.testing.loop import run_virtual

pytestmark = pytest.mark.slow
GOLDEN = Path(__file__).with_name("autoscaler_scenes.json")
NODE_CLASS = MANIFEST.rpartition("---")[0]  # without its node pool


def test_every_scene_on_the_embedded_api() -> None:
    """With Karpenter's times: what happened is what ``autoscaler_scenes.json`` has."""

    async def story() -> dict[str, object]:
        world = await create_environment()
        await machine_stories.begin(world.stage, replicas=0)
        await world.stage.apply(NODE_CLASS)
        settings = repairing(AutoscalerSettings(), 900.0)
        program = AutoscalerProgram(
            world.store, world.clock, world.engine, settings, add_cluster_api
        )
        running = asyncio.create_task(program.run())
        env = ScaledEnvironment(world.stage, program.reasons)
        try:
            await run_scenes(env)
            await machine_stories.end(world.stage)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            await world.close()
        return env.seen

    seen = run_virtual(story())
    assert json.loads(json.dumps(seen)) == json.loads(GOLDEN.read_text())
