"""One poller for all tasks of a region, on virtual time."""

import asyncio
from typing import Any

import pytest

from moxwell.pve import errors
from moxwell.pve.client import PveWriter
from moxwell.pve.tasks import TaskEnded, TaskPoller
from moxwell.pve.values import Upid
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.scripted_transport import ScriptedTransport


def upid(n: int) -> Upid:
    return Upid(f"UPID:pve1:{n:08X}:00000001:6AFA23F8:qmstart:{n}:u@pve:")


class Server:
    """A server whose tasks end at given times; some are missing in its list."""

    def __init__(self, ends: dict[Upid, tuple[float, str]], unlisted: set[Upid] | None = None):
        self.ends = ends
        self.unlisted = unlisted or set()
        self.transport = ScriptedTransport(self.answer)
        self.tasks = TaskPoller(PveWriter(self.transport), LoopClock())
        self.ended: list[TaskEnded] = []
        self.tasks.subscribe(self.ended.append)

    def status(self, task: Upid) -> str | None:
        at, text = self.ends[task]
        return text if asyncio.get_running_loop().time() >= at else None

    def answer(self, method: str, path: str, params: dict[str, Any]) -> Any:
        if path == "/cluster/tasks":
            rows = [task for task in self.ends if task not in self.unlisted]
            return [self.row(task) for task in rows]
        if path == "/nodes/pve1/tasks":
            return [self.row(task) for task in self.ends]
        task = Upid(path.split("/")[4])
        if task not in self.ends:
            return errors.TaskMissing("no such task", status=400)
        text = self.status(task)
        return {"status": "stopped", "exitstatus": text} if text else {"status": "running"}

    def row(self, task: Upid) -> dict[str, Any]:
        text = self.status(task)
        return {"upid": str(task), **({"endtime": 1, "status": text} if text else {})}

    def story(self, seconds: float, *follow: Upid) -> None:
        async def play() -> None:
            runner = asyncio.create_task(self.tasks.run())
            for task in follow:
                self.tasks.follow(task, f"owner-{task.target}")
            await asyncio.sleep(seconds)
            runner.cancel()

        run_virtual(play())

    @property
    def outcome(self) -> list[tuple[object, str]]:
        return [(event.owner, event.exit_text) for event in self.ended]


def test_an_ended_task_becomes_an_event_for_its_owner() -> None:
    server = Server({upid(1): (5, "OK"), upid(2): (3, "VM is locked (backup)")})
    server.story(10, upid(1), upid(2))
    assert server.outcome == [("owner-2", "VM is locked (backup)"), ("owner-1", "OK")]
    failed, went_well = server.ended
    assert isinstance(failed.error, errors.Locked)
    assert went_well.ok
    assert server.tasks.running == ()


def test_one_request_a_round_however_many_tasks() -> None:
    server = Server({upid(n): (8.5, "OK") for n in range(500)})
    server.story(60, *server.ends)
    assert len(server.ended) == 500
    assert len(server.transport.sent) == 17


def test_without_tasks_nothing_is_sent() -> None:
    server = Server({})
    server.story(3600)
    assert server.transport.sent == []


def test_a_long_task_is_polled_less_often() -> None:
    server = Server({upid(1): (1000, "OK")})
    server.story(1100, upid(1))
    assert len(server.transport.sent) < 20 + 1000 / 2 + 5


def test_many_missing_tasks_are_read_from_one_list_of_their_host() -> None:
    ends = {upid(n): (3 + n / 100, "OK") for n in range(200)}
    server = Server(ends, unlisted=set(ends))
    server.story(10, *ends)
    assert len(server.ended) == 200
    assert len(server.transport.sent) < 25


def test_a_missing_task_is_read_from_its_host() -> None:
    server = Server({upid(1): (4, "OK")}, unlisted={upid(1)})
    server.story(10, upid(1))
    assert server.outcome == [("owner-1", "OK")]


def test_an_empty_list_makes_the_poller_ask_the_hosts() -> None:
    ends = {upid(1): (0.4, "OK"), upid(2): (3.2, "OK"), upid(3): (900, "OK")}
    server = Server(ends, unlisted=set(ends))
    server.story(1000, *ends)
    assert server.outcome == [("owner-1", "OK"), ("owner-2", "OK"), ("owner-3", "OK")]
    lists = [sent for sent in server.transport.sent if sent[1] == "/cluster/tasks"]
    assert 3 <= len(lists) <= 6  # at first, and now and then, because rights can be granted later


def test_the_list_is_used_again_after_the_right_is_granted() -> None:
    ends = {upid(n): (500.0, "OK") for n in range(4)}
    server = Server(ends, unlisted=set(ends))

    async def play() -> None:
        for task in ends:
            server.tasks.follow(task, "owner")
        await server.tasks.poll()
        server.unlisted = set()
        for _ in range(200):
            await server.tasks.poll()
        asked = len(server.transport.sent)
        await server.tasks.poll()
        assert [sent[1] for sent in server.transport.sent[asked:]] == ["/cluster/tasks"]

    run_virtual(play())


def test_a_task_that_no_longer_exists_ends_with_an_error() -> None:
    server = Server({})
    server.story(10, upid(7))
    assert isinstance(server.ended[0].error, errors.TaskAborted)


def test_an_unreachable_region_loses_no_task() -> None:
    server = Server({upid(1): (4, "OK")})
    answer = server.transport.answer

    def down_first(method: str, path: str, params: dict[str, Any]) -> Any:
        if asyncio.get_running_loop().time() < 20:
            return errors.RegionUnreachable("down")
        return answer(method, path, params)

    server.transport.answer = down_first
    server.story(40, upid(1))
    assert server.outcome == [("owner-1", "OK")]


def test_tasks_are_found_by_owner_and_listeners_unsubscribe() -> None:
    server = Server({upid(1): (2, "OK"), upid(2): (9, "OK")})

    async def play() -> None:
        stop = server.tasks.subscribe(server.ended.append)
        stop()
        server.tasks.follow(upid(1), "a")
        server.tasks.follow(upid(2), "b")
        server.tasks.follow(upid(1), "again")  # the first owner stays
        assert server.tasks.of("a") == (upid(1),)
        await asyncio.sleep(3)
        await server.tasks.poll()
        assert server.tasks.running == (upid(2),)

    run_virtual(play())
    assert len(server.ended) == 1


def test_a_caller_can_wait_for_a_task() -> None:
    server = Server({upid(1): (3, "OK"), upid(2): (4, "start failed: QEMU exited with code 1")})

    async def play() -> None:
        runner = asyncio.create_task(server.tasks.run())
        async with asyncio.timeout(60):
            first, again, second = await asyncio.gather(
                *(server.tasks.wait_ended(upid(n)) for n in (1, 1, 2))
            )
        assert first is again
        assert (first.ok, second.ok) == (True, False)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await server.tasks.wait_ended(upid(2))
        runner.cancel()

    run_virtual(play())
