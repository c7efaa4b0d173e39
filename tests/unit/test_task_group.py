"""Who holds the loops of hosted control planes."""

import asyncio
from contextlib import suppress

import pytest

from moxwell import task_group
from moxwell.controllers.cloud.features import Features
from moxwell.controllers.cloud.setup import add_cloud
from moxwell.errors import Bug
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.regions import Regions
from moxwell.pve.values import Secret
from moxwell.runtime.manager import Runtime, assemble
from moxwell.runtime.settings import Settings
from moxwell.testing.kube import FakeKube
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.scripted_transport import ScriptedTransport


def runtime() -> Runtime:
    clock = LoopClock()
    return assemble(FakeKube(clock), clock, Settings(elect=False, identity="t"))


def estate() -> Regions:
    auth = TokenAuth("u@pve!t", Secret("s"))
    config = RegionConfig(region="a", urls=("https://x",), auth=auth)
    return Regions([config], LoopClock(), connect=lambda c: ScriptedTransport(lambda *_: []))


async def cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_nothing_is_spawned_before_somebody_holds_it() -> None:
    with pytest.raises(Bug):
        task_group.Loops().spawn(runtime().manager)


def test_what_is_held_ends_with_its_holder_and_then_the_rest_is_done() -> None:
    async def story() -> None:
        loops, over, spawned = task_group.Loops(), asyncio.Event(), list[asyncio.Task[None]]()

        async def end() -> None:
            assert spawned[0].done()
            over.set()

        holder = asyncio.create_task(loops.run(end))
        await loops.wait_ready()
        spawned.append(loops.spawn(runtime().manager))
        await asyncio.sleep(1)
        await cancel(holder)
        assert over.is_set()

    run_virtual(story())


def test_a_tenant_that_ends_hears_of_no_region_any_more() -> None:
    async def story() -> None:
        regions, loops, tenant = estate(), task_group.Loops(), runtime()

        async def end() -> None:
            return

        holder = asyncio.create_task(loops.run(end))
        await loops.wait_ready()
        add_cloud(tenant, LoopClock(), regions, Features())
        assert len(regions._inventory_listeners) == 2
        task = loops.spawn(tenant.manager)
        await asyncio.sleep(1)
        await task_group.end(task)
        assert regions._inventory_listeners == []
        assert regions["a"].inventory._listeners == []
        await cancel(holder)

    run_virtual(story())
