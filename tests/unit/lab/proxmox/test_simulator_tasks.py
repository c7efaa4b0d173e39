"""Workers, their logs, and lock files."""

import asyncio

import pytest
from sim_bench import Bench, tell

from moxwell.lab.proxmox.errors import PveError, die
from moxwell.lab.proxmox.tasks import Work


def test_a_failure_inside_a_worker_is_its_exit_status() -> None:
    async def story(bench: Bench) -> None:
        async def worker(work: Work) -> None:
            work.log("one")
            raise die("it broke\nbadly")

        workers = bench.engine.desks["r"].workers
        upid = workers.spawn("n1", "qmtest", 100, "root@pam", worker)
        task = await workers.wait(upid)
        assert task.exitstatus == "it broke badly"
        assert task.log == ["one", "TASK ERROR: it broke badly"]

    tell(story)


def test_a_running_task_is_active_until_it_ends() -> None:
    async def story(bench: Bench) -> None:
        async def worker(work: Work) -> None:
            await work.sleep(60)

        workers = bench.engine.desks["r"].workers
        upid = workers.spawn("n1", "qmtest", 100, "root@pam!t", worker)
        status = await bench.ask("GET", f"/nodes/n1/tasks/{upid}/status")
        assert (status["status"], status["user"], status["tokenid"]) == ("running", "root@pam", "t")
        active = await bench.ask("GET", "/nodes/n1/tasks", source="active")
        assert [row["status"] for row in active] == ["RUNNING"]
        elsewhere = await bench.send("GET", f"/nodes/n2/tasks/{upid}/status")
        assert elsewhere.json()["errors"] == {"upid": "no such task"}
        await bench.pause(61)
        status = await bench.ask("GET", f"/nodes/n1/tasks/{upid}/status")
        assert (status["status"], status["exitstatus"]) == ("stopped", "OK")

    tell(story)


def test_a_task_can_be_stopped() -> None:
    async def story(bench: Bench) -> None:
        async def worker(work: Work) -> None:
            await work.sleep(3600)

        workers = bench.engine.desks["r"].workers
        upid = workers.spawn("n1", "qmtest", 100, "root@pam", worker)
        await bench.pause(1)
        await bench.ask("DELETE", f"/nodes/n1/tasks/{upid}")
        assert (await workers.wait(upid)).exitstatus == "received interrupt"

    tell(story)


def test_warnings_are_counted() -> None:
    async def story(bench: Bench) -> None:
        async def worker(work: Work) -> None:
            work.warn("look out")

        workers = bench.engine.desks["r"].workers
        task = await workers.wait(workers.spawn("n1", "qmtest", "", "root@pam", worker))
        assert (task.exitstatus, task.log[-1]) == ("WARNINGS: 1", "TASK WARNINGS: 1")

    tell(story)


@pytest.mark.parametrize(
    "held_seconds, outcome",
    [
        pytest.param(5, "got it", id="a short wait ends well"),
        pytest.param(11, "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout",
                     id="a long one does not"),
    ],
)  # fmt: skip
def test_lock_files_are_waited_for_ten_seconds(held_seconds: int, outcome: str) -> None:
    async def story(bench: Bench) -> None:
        locks = bench.engine.desks["r"].locks

        async def hold() -> None:
            async with locks.hold("qemu", 100):
                await asyncio.sleep(held_seconds)

        first = asyncio.create_task(hold())
        await asyncio.sleep(0)
        try:
            async with locks.hold("qemu", 100):
                found = "got it"
        except PveError as problem:
            found = problem.message
        assert found == outcome
        await first
        assert not locks.is_held("qemu", 100)

    tell(story)


def test_lock_files_are_given_in_order() -> None:
    async def story(bench: Bench) -> None:
        locks, order = bench.engine.desks["r"].locks, []

        async def take(name: str) -> None:
            async with locks.hold("qemu", 100):
                order.append(name)
                await asyncio.sleep(1)

        await asyncio.gather(*(take(name) for name in "abcd"))
        assert order == ["a", "b", "c", "d"]

    tell(story)


JOE = {"authorization": "PVEAPIToken=joe@pve!full=s"}


@pytest.mark.parametrize(
    ("owner", "rights", "shown"),
    [
        pytest.param("joe@pve!full", (), False, id="a token is not shown its own tasks"),
        pytest.param("joe@pve", (), False, id="nor those of its user"),
        pytest.param("joe@pve!full", ("/nodes",), False, id="also if it may audit the nodes"),
        pytest.param("root@pam", ("/",), True, id="who may audit everything is shown everything"),
        pytest.param("joe@pve!full", ("/",), True, id="and then its own too"),
    ],
)
def test_the_list_of_the_cluster_hides_a_tokens_own_tasks(
    owner: str, rights: tuple[str, ...], shown: bool
) -> None:
    async def story(bench: Bench) -> None:
        for path in rights:
            await bench.ask("PUT", "/access/acl", path=path, users="joe@pve", roles="PVEAuditor")
        workers = bench.engine.desks["r"].workers
        upid = workers.spawn("n1", "qmtest", 100, owner, _sleep)
        await bench.pause(1)
        rows = await bench.ask("GET", "/cluster/tasks", headers=JOE)
        assert (upid in {row["upid"] for row in rows}) is shown

    tell(story)


def test_a_user_is_shown_the_tasks_of_its_tokens_and_a_host_shows_a_token_its_own() -> None:
    async def story(bench: Bench) -> None:
        workers = bench.engine.desks["r"].workers
        upid = workers.spawn("n1", "qmtest", 100, "joe@pve!full", _sleep)
        login = {"username": "joe@pve", "password": "joes-secret"}
        ticket = (await bench.ask("POST", "/access/ticket", headers={}, **login))["ticket"]
        cookie = {"cookie": f"PVEAuthCookie={ticket}"}
        rows = await bench.ask("GET", "/cluster/tasks", headers=cookie)
        assert [row["upid"] for row in rows] == [upid]
        rows = await bench.ask("GET", "/nodes/n1/tasks", headers=JOE, source="active")
        assert [row["upid"] for row in rows] == [upid]

    tell(story)


async def _sleep(work: Work) -> None:
    await work.sleep(60)
