"""
The autoscaler over Proxmox on a genuine control plane: apiserver, scheduler, controller manager and
Cluster API are genuine, Proxmox and the guests that join as nodes are simulated.

The scenes are those of ``moxwell.testing.autoscaler_scenes``, with shorter times. Afterwards a pod
gets a node and the node ends while the program is killed again and again.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from envtest import control_plane, managers
from envtest.control_plane import ControlPlane
from envtest.plugin import CAPI, KUBERNETES, require
from moxwell.api import registry
from moxwell.clock import SystemClock
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.transport import KubeTransport
from moxwell.lab.guests.guest_runner import GuestRunner
from moxwell.lab.proxmox.engine import Engine
from moxwell.lab.proxmox.world import read_world
from moxwell.testing import machine_stories
from moxwell.testing.autoscaler_program import AutoscalerProgram, hasty
from moxwell.testing.autoscaler_scenes import ScaledEnvironment, nothing_is_left, run_scenes
from moxwell.testing.karpenter_environment import MANIFEST
from moxwell.testing.two_regions_world import QUICK
from support.cluster_api_run import install, install_crds
from support.genuine_stage import furnished

pytestmark = [pytest.mark.genuine, pytest.mark.slow]
NODE_CLASS = MANIFEST.rpartition("---")[0]  # without its node pool
KILL_AFTER = 3  # effects; the embedded API is for a kill after every single one
Rig = tuple[ScaledEnvironment, AutoscalerProgram]


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    require(*KUBERNETES, *CAPI)
    with ControlPlane(tmp_path / "plane") as made:
        made.start("--enable-bootstrap-token-auth=true")
        made.start_controller_manager("--node-monitor-grace-period=25s", "--node-monitor-period=1s")
        made.start_scheduler()
        control_plane.wait_default_account(made)
        managers.start(made)
        yield made


@asynccontextmanager
async def rig(plane: ControlPlane) -> AsyncIterator[Rig]:
    """A cluster without nodes and the program, which does not run yet."""
    clock = SystemClock()
    guests = GuestRunner(KubeTransport, clock)
    engine = Engine(read_world(QUICK, "world", clock.monotonic()), clock, guest_os=guests)
    access = kubeconfig.find(clock, {}, str(plane.kubeconfig))
    async with KubeTransport(access) as handler:
        kube = Kube(handler)
        await install(kube)
        await install_crds(kube, registry.make_karpenter_crds())
        stage = await furnished(plane, kube, engine)
        await machine_stories.begin(stage, replicas=0)
        await stage.apply(NODE_CLASS)
        program = AutoscalerProgram(handler, clock, engine, hasty())
        living = asyncio.create_task(guests.run())
        try:
            yield ScaledEnvironment(stage, program.reasons, expire_after="40s"), program
        finally:
            await end(living)
            await engine.close()


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


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
