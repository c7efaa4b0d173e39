"""
The autoscaler over Proxmox on a genuine control plane: apiserver, scheduler, controller manager and
Cluster API are genuine, Proxmox and the guests that join as nodes are simulated.

The scenes are those of ``moxwell.testing.autoscaler_scenes``, with shorter times. Afterwards a pod
gets a node and the node ends while the program is killed again and again: after every third effect,
or after every single one with ``MOXWELL_KILL_AFTER=1``, which takes three minutes more.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from envtest.control_plane import ControlPlane
from envtest.plugin import CAPI, KUBERNETES, require
from moxwell.testing import machine_stories
from moxwell.testing.autoscaler_scenes import ScaledEnvironment, nothing_is_left, run_scenes
from moxwell.testing.karpenter_environment import MANIFEST
from support.autoscaler_rig import end, rig, start_kubernetes

pytestmark = [pytest.mark.genuine, pytest.mark.slow]
NODE_CLASS = MANIFEST.rpartition("---")[0]  # without its node pool
KILL_AFTER = int(os.environ.get("MOXWELL_KILL_AFTER", "3"))  # effects


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    require(*KUBERNETES, *CAPI)
    with ControlPlane(tmp_path / "plane") as made:
        start_kubernetes(made)
        yield made


async def node_comes_and_goes_while_killed(env: ScaledEnvironment) -> None:
    """One pod, one node; the program has been killed many times when both are gone."""
    await env.pool("killed")
    await env.deploy("one", 1, "killed")
    await env.running("one", 1)
    claim = await env.claim_of("one")
    assert sum(len(found) for found in env.stage.vmids().values()) == 1
    await env.scale("one", 0)
    await env.gone({claim.uid})


def test_every_scene_on_a_genuine_control_plane(plane: ControlPlane) -> None:
    async def tell() -> None:
        async with rig(plane) as (env, program):
            await env.stage.apply(NODE_CLASS)
            running = asyncio.create_task(program.run())
            try:
                await run_scenes(env)
            finally:
                await end(running)
            killing = asyncio.create_task(program.run(kill_after=KILL_AFTER))
            try:
                await node_comes_and_goes_while_killed(env)
            finally:
                await end(killing)
            assert program.lives > 8, program.effects
            running = asyncio.create_task(program.run())
            try:
                await nothing_is_left(env)
                await machine_stories.end(env.stage)
            finally:
                await end(running)

    asyncio.run(tell())
