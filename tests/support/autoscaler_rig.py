"""The autoscaler over simulated regions on a genuine control plane with Cluster API."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from envtest import control_plane, managers
from envtest.control_plane import ControlPlane
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
from moxwell.testing.autoscaler_scenes import ScaledEnvironment
from moxwell.testing.two_regions_world import QUICK
from support.cluster_api_run import install, install_crds
from support.genuine_stage import furnished

Rig = tuple[ScaledEnvironment, AutoscalerProgram]


def start_kubernetes(plane: ControlPlane) -> None:
    """API server, controller manager, scheduler and Cluster API; lost nodes are found quickly."""
    plane.start("--enable-bootstrap-token-auth=true")
    plane.start_controller_manager("--node-monitor-grace-period=25s", "--node-monitor-period=1s")
    plane.start_scheduler()
    control_plane.wait_default_account(plane)
    managers.start(plane)


@asynccontextmanager
async def rig(plane: ControlPlane, world: str = QUICK) -> AsyncIterator[Rig]:
    """A cluster without nodes and the program, which does not run yet."""
    clock = SystemClock()
    guests = GuestRunner(KubeTransport, clock)
    engine = Engine(read_world(world, "world", clock.monotonic()), clock, guest_os=guests)
    access = kubeconfig.find(clock, {}, str(plane.kubeconfig))
    async with KubeTransport(access) as handler:
        kube = Kube(handler)
        await install(kube)
        await install_crds(kube, registry.make_karpenter_crds())
        stage = await furnished(plane, kube, engine)
        await machine_stories.begin(stage, replicas=0)
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
