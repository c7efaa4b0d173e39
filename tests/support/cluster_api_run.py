"""
Our machine controllers in this process, between a genuine Kubernetes and simulated regions.

In: a started control plane with Cluster API, and a story. Out: the story runs while everything
runs, and everything has ended afterwards, also when the story failed. Guests boot from their seed
disks and hear the power button; they join whatever cluster their seed names.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from envtest.control_plane import ControlPlane
from moxwell.api import registry
from moxwell.clock import SystemClock
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.controllers.infra.setup import add_infra
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.transport import KubeTransport
from moxwell.lab.guests.guest_runner import GuestRunner
from moxwell.lab.proxmox.engine import Engine
from moxwell.lab.proxmox.world import read_world
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Reservations
from moxwell.runtime.manager import Runtime, assemble
from moxwell.runtime.settings import ManagerSettings
from moxwell.testing.cached_worlds import CRDS
from moxwell.testing.pve import SimTransport
from moxwell.testing.two_regions import TOKEN, TOKEN_SECRET, configs
from moxwell.testing.two_regions_world import QUICK

Tell = Callable[[Kube, Engine], Awaitable[None]]
Extend = Callable[[Runtime], None]


def _nothing(_: Runtime) -> None:
    """Ours alone."""


def run_story(
    plane: ControlPlane, tell: Tell, *, world: str = QUICK, extend: Extend = _nothing
) -> None:
    """Tell a story to the end, on real time; ``extend`` adds further controllers."""

    async def main() -> None:
        clock = SystemClock()
        guests = GuestRunner(KubeTransport, clock)
        engine = Engine(read_world(world, "world", clock.monotonic()), clock, guest_os=guests)
        access = kubeconfig.find(clock, {}, str(plane.kubeconfig))
        async with KubeTransport(access) as handler:
            await install(Kube(handler))
            await _with_controllers(handler, engine, guests, tell, extend)

    asyncio.run(main())


def wire(engine: Engine, region: str) -> SimTransport:
    """A way to talk to a region as ours do."""
    return SimTransport(engine, region, token=f"{TOKEN}={TOKEN_SECRET}")


async def _with_controllers(
    handler: KubeTransport, engine: Engine, guests: GuestRunner, tell: Tell, extend: Extend
) -> None:
    clock = SystemClock()
    runtime = assemble(handler, clock, ManagerSettings(elect=False, identity="envtest"))
    known = configs(*engine.runtimes)
    regions = Regions(known, clock, connect=lambda config: wire(engine, config.region))
    add_infra(runtime, clock, regions, Reservations(), registry=RegionRegistry(regions, known))
    extend(runtime)
    running = [asyncio.create_task(w) for w in (guests.run(), regions.run(), runtime.manager.run())]
    try:
        for region in regions.values():
            await region.inventory.wait_synced()
        await tell(Kube(handler), engine)
    finally:
        runtime.manager.stop()
        for task in running[:2]:
            task.cancel()
        for task in running:
            with suppress(asyncio.CancelledError):
                await task
        await engine.close()


async def install(kube: Kube) -> None:
    """Our CRDs, and Kamaji's for the control plane that is played."""
    wanted = ("proxmox", "kamajicontrolplanes")
    crds = [c for c in registry.make_crds() if c["metadata"]["name"].startswith(wanted)]
    await install_crds(kube, crds)


async def install_crds(kube: Kube, crds: Sequence[dict[str, Any]]) -> None:
    """Apply CRDs and wait until they are served."""
    for crd in crds:
        await kube.apply(crd, CRDS, force=True)
    for crd in crds:
        while not await _is_established(kube, crd["metadata"]["name"]):
            await asyncio.sleep(0.1)


async def _is_established(kube: Kube, name: str) -> bool:
    said = (await kube.get(CRDS, name)).get("status", {}).get("conditions") or []  # null at first
    return any(c["type"] == "Established" and c["status"] == "True" for c in said)
