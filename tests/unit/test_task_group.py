"""Tasks that outlive the pass that starts them."""

import asyncio
from contextlib import suppress

import pytest

from moxwell import task_group
from moxwell.controllers.cloud.features import Features
from moxwell.controllers.cloud.setup import add_cloud
from moxwell.errors import Bug
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.regions import Regions
from moxwell.pve.values import SecretValue
from moxwell.runtime.manager import Runtime, assemble
from moxwell.runtime.settings import ManagerSettings
from moxwell.testing.kube import FakeKube
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.scripted_transport import ScriptedTransport


def runtime() -> Runtime:
    clock = LoopClock()
    return assemble(FakeKube(clock), clock, ManagerSettings(elect=False, identity="t"))


def regions_of_one() -> Regions:
    auth = TokenAuth("u@pve!t", SecretValue("s"))
    config = RegionConfig(region="a", urls=("https://x",), auth=auth)
    return Regions([config], LoopClock(), connect=lambda c: ScriptedTransport(lambda *_: []))


async def cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_nothing_is_spawned_before_run() -> None:
    with pytest.raises(Bug):
        task_group.LongLivedTasks().spawn(runtime().manager.run())


def test_tasks_end_with_run_and_cleanup_follows() -> None:
    async def story() -> None:
        tasks, over, spawned = (
            task_group.LongLivedTasks(),
            asyncio.Event(),
            list[asyncio.Task[None]](),
        )

        async def end() -> None:
            assert spawned[0].done()
            over.set()

        owner = asyncio.create_task(tasks.run(end))
        await tasks.wait_ready()
        spawned.append(tasks.spawn(runtime().manager.run()))
        await asyncio.sleep(1)
        await cancel(owner)
        assert over.is_set()

    run_virtual(story())


def test_a_cancelled_tenant_listens_to_no_region() -> None:
    async def story() -> None:
        regions, tasks, tenant = regions_of_one(), task_group.LongLivedTasks(), runtime()

        async def end() -> None:
            return

        owner = asyncio.create_task(tasks.run(end))
        await tasks.wait_ready()
        add_cloud(tenant, LoopClock(), regions, Features())
        assert regions.listener_count == 2
        task = tasks.spawn(tenant.manager.run())
        await asyncio.sleep(1)
        await task_group.cancel(task)
        assert regions.listener_count == 0
        assert regions["a"].inventory.listener_count == 0
        await cancel(owner)

    run_virtual(story())


def test_a_loop_that_fails_begins_again_and_ends_when_cancelled() -> None:
    async def story() -> None:
        begun, errors = 0, []

        async def loop() -> None:
            nonlocal begun
            begun += 1
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(1000))
                await asyncio.sleep(1)
                if begun < 3:
                    raise OverflowError("inner")

        async def failed(error: BaseException) -> None:
            errors.append(type(error))
            await asyncio.sleep(10)

        running = asyncio.create_task(task_group.keep_running(loop, failed))
        await asyncio.sleep(100)
        assert (begun, errors) == (3, [OverflowError, OverflowError])
        await task_group.cancel(running)
        assert running.cancelled()

    run_virtual(story())
