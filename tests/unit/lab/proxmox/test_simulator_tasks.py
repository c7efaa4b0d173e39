"""Workers, task logs and lock files."""

import asyncio

import pytest

from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.tasks import WorkerContext
from support.simulator_cluster import SimulatedCluster, run_scenario


def test_a_failure_inside_a_worker_is_its_exit_status() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        async def worker(ctx: WorkerContext) -> None:
            ctx.log("one")
            raise die("it broke\nbadly")

        workers = sim.engine.runtimes["r"].workers
        upid = workers.spawn("n1", "qmtest", 100, "root@pam", worker)
        task = await workers.wait(upid)
        assert task.exitstatus == "it broke badly"
        assert task.log == ["one", "TASK ERROR: it broke badly"]

    run_scenario(scenario)


def test_a_worker_that_breaks_ends_its_task() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        async def worker(ctx: WorkerContext) -> None:
            raise RuntimeError("the guest broke")

        runtime = sim.engine.runtimes[sim.region.name]
        upid = runtime.workers.spawn("n1", "qmstart", "100", "root@pam", worker)
        task = await runtime.workers.wait(upid)
        assert (task.exitstatus, task.log[-1]) == ("the guest broke", "TASK ERROR: the guest broke")

    run_scenario(scenario)


def test_a_running_task_is_active_until_it_ends() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        async def worker(ctx: WorkerContext) -> None:
            await ctx.sleep(60)

        workers = sim.engine.runtimes["r"].workers
        upid = workers.spawn("n1", "qmtest", 100, "root@pam!t", worker)
        status = await sim.request("GET", f"/nodes/n1/tasks/{upid}/status")
        assert (status["status"], status["user"], status["tokenid"]) == ("running", "root@pam", "t")
        active = await sim.request("GET", "/nodes/n1/tasks", source="active")
        assert [row["status"] for row in active] == ["RUNNING"]
        elsewhere = await sim.send("GET", f"/nodes/n2/tasks/{upid}/status")
        assert elsewhere.json()["errors"] == {"upid": "no such task"}
        await sim.pause(61)
        status = await sim.request("GET", f"/nodes/n1/tasks/{upid}/status")
        assert (status["status"], status["exitstatus"]) == ("stopped", "OK")

    run_scenario(scenario)


def test_a_task_can_be_stopped() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        async def worker(ctx: WorkerContext) -> None:
            await ctx.sleep(3600)

        workers = sim.engine.runtimes["r"].workers
        upid = workers.spawn("n1", "qmtest", 100, "root@pam", worker)
        await sim.pause(1)
        await sim.request("DELETE", f"/nodes/n1/tasks/{upid}")
        assert (await workers.wait(upid)).exitstatus == "received interrupt"

    run_scenario(scenario)


def test_warnings_are_counted() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        async def worker(ctx: WorkerContext) -> None:
            ctx.warn("look out")

        workers = sim.engine.runtimes["r"].workers
        task = await workers.wait(workers.spawn("n1", "qmtest", "", "root@pam", worker))
        assert (task.exitstatus, task.log[-1]) == ("WARNINGS: 1", "TASK WARNINGS: 1")

    run_scenario(scenario)


@pytest.mark.parametrize(
    "held_seconds, outcome",
    [
        pytest.param(5, "got it", id="a short wait ends well"),
        pytest.param(11, "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout",
                     id="a long one does not"),
    ],
)  # fmt: skip
def test_lock_files_time_out_after_ten_seconds(held_seconds: int, outcome: str) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        locks = sim.engine.runtimes["r"].locks

        async def hold() -> None:
            async with locks.hold("qemu", 100):
                await asyncio.sleep(held_seconds)

        first = asyncio.create_task(hold())
        await asyncio.sleep(0)
        try:
            async with locks.hold("qemu", 100):
                found = "got it"
        except PveException as problem:
            found = problem.message
        assert found == outcome
        await first
        assert not locks.is_held("qemu", 100)

    run_scenario(scenario)


def test_lock_files_are_granted_in_order() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        locks, order = sim.engine.runtimes["r"].locks, []

        async def remove(name: str) -> None:
            async with locks.hold("qemu", 100):
                order.append(name)
                await asyncio.sleep(1)

        await asyncio.gather(*(remove(name) for name in "abcd"))
        assert order == ["a", "b", "c", "d"]

    run_scenario(scenario)


JOE = {"authorization": "PVEAPIToken=joe@pve!full=s"}


@pytest.mark.parametrize(
    ("owner", "audited", "visible"),
    [
        pytest.param("joe@pve!full", (), False, id="a token is not shown its own tasks"),
        pytest.param("joe@pve", (), False, id="nor those of its user"),
        pytest.param("joe@pve!full", ("/nodes",), False, id="also if it may audit the nodes"),
        pytest.param("root@pam", ("/",), True, id="who may audit everything is shown everything"),
        pytest.param("joe@pve!full", ("/",), True, id="and then its own too"),
    ],
)
def test_the_cluster_task_list_hides_tasks_of_tokens(
    owner: str, audited: tuple[str, ...], visible: bool
) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        for path in audited:
            await sim.request("PUT", "/access/acl", path=path, users="joe@pve", roles="PVEAuditor")
        workers = sim.engine.runtimes["r"].workers
        upid = workers.spawn("n1", "qmtest", 100, owner, _sleep)
        await sim.pause(1)
        rows = await sim.request("GET", "/cluster/tasks", headers=JOE)
        assert (upid in {row["upid"] for row in rows}) is visible

    run_scenario(scenario)


def test_a_user_sees_the_tasks_of_its_tokens() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        workers = sim.engine.runtimes["r"].workers
        upid = workers.spawn("n1", "qmtest", 100, "joe@pve!full", _sleep)
        login = {"username": "joe@pve", "password": "joes-secret"}
        ticket = (await sim.request("POST", "/access/ticket", headers={}, **login))["ticket"]
        cookie = {"cookie": f"PVEAuthCookie={ticket}"}
        rows = await sim.request("GET", "/cluster/tasks", headers=cookie)
        assert [row["upid"] for row in rows] == [upid]
        rows = await sim.request("GET", "/nodes/n1/tasks", headers=JOE, source="active")
        assert [row["upid"] for row in rows] == [upid]

    run_scenario(scenario)


async def _sleep(ctx: WorkerContext) -> None:
    await ctx.sleep(60)
