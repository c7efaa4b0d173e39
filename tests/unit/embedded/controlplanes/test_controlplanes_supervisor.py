"""Programs are kept running: stories on virtual time, with processes that are only written down."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from moxwell.embedded.controlplanes.supervision import supervisor
from moxwell.embedded.controlplanes.supervision.supervisor import Program, Supervisor, backoff
from moxwell.errors import Unreachable
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.processes import FakeProcesses


def answering(says: str = "") -> Callable[[], Awaitable[str]]:
    async def probe() -> str:
        return says

    return probe


def program(folder: Path, *words: str, says: str = "") -> Program:
    return Program(name="api", argv=("api", *words), folder=folder, probe=answering(says))


async def lose_power() -> None:
    """The daemon is gone, what it kept runs on."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@pytest.mark.parametrize(
    "failures, seconds",
    [
        pytest.param(1, 1.0, id="the first time at once, nearly"),
        pytest.param(3, 4.0, id="doubling"),
        pytest.param(7, 60.0, id="never longer than a minute"),
        pytest.param(10_000, 60.0, id="for ever"),
    ],
)
def test_the_pause_grows(failures: int, seconds: float) -> None:
    assert backoff(failures) == seconds


def test_a_program_is_started_once_and_gets_well(tmp_path: Path) -> None:
    async def story() -> None:
        processes, calls = FakeProcesses(), []
        keeper = Supervisor(processes, LoopClock())
        for _ in range(3):
            await keeper.keep(program(tmp_path), lambda: calls.append(1))
            await asyncio.sleep(1)
        state = keeper.state(tmp_path / "api")
        assert (state.healthy, state.pid, len(processes.started)) == (True, 1000, 1)
        assert calls
        await keeper.stop(tmp_path / "api")
        assert processes.running == {}

    run_virtual(story())


def test_one_that_ends_is_started_again_later_and_later(tmp_path: Path) -> None:
    async def story() -> None:
        processes, clock = FakeProcesses(), LoopClock()
        keeper = Supervisor(processes, clock)
        (tmp_path / "api.log").write_text("listen: address already in use\n")
        await keeper.keep(program(tmp_path))
        waits = []
        for pid in range(1000, 1005):
            await asyncio.sleep(0.1)
            processes.crash(pid, 1)
            at = clock.monotonic()
            await asyncio.sleep(0)
            while len(processes.started) <= pid - 999:
                await asyncio.sleep(0.1)
                state = keeper.state(tmp_path / "api")
                assert state.pid or "code 1: listen: address already in use" in state.message
            waits.append(round(clock.monotonic() - at))
        assert waits == [1, 2, 4, 8, 16]
        assert keeper.state(tmp_path / "api").restarts == 5
        await keeper.stop(tmp_path / "api")

    run_virtual(story())


def test_one_that_lived_long_begins_with_the_first_pause(tmp_path: Path) -> None:
    async def story() -> None:
        processes, clock = FakeProcesses(), LoopClock()
        keeper = Supervisor(processes, clock)
        await keeper.keep(program(tmp_path))
        for _ in range(4):
            await asyncio.sleep(supervisor.STABLE_SECONDS + 1)
            processes.crash(max(processes.running), 2)
            at, count = clock.monotonic(), len(processes.started)
            while len(processes.started) == count:
                await asyncio.sleep(0.1)
            assert clock.monotonic() - at < 1.5
        await keeper.stop(tmp_path / "api")

    run_virtual(story())


def test_one_that_is_deaf_for_long_is_started_anew(tmp_path: Path) -> None:
    async def story() -> None:
        processes, deaf = FakeProcesses(), list[int]()

        async def probe() -> str:
            if deaf:
                raise Unreachable("nobody answers")
            return ""

        keeper = Supervisor(processes, LoopClock())
        await keeper.keep(replace(program(tmp_path), probe=probe))
        await asyncio.sleep(10)
        assert keeper.state(tmp_path / "api").healthy
        deaf.append(1)
        await asyncio.sleep(60)
        assert keeper.state(tmp_path / "api").message == "nobody answers"
        assert len(processes.started) == 1
        await asyncio.sleep(supervisor.UNHEALTHY_SECONDS)
        assert len(processes.started) == 2
        await keeper.stop(tmp_path / "api")

    run_virtual(story())


def test_a_second_daemon_adopts_what_the_first_left(tmp_path: Path) -> None:
    async def story() -> None:
        processes = FakeProcesses()
        await Supervisor(processes, LoopClock()).keep(program(tmp_path))
        await asyncio.sleep(5)
        await lose_power()
        second = Supervisor(processes, LoopClock())
        await second.keep(program(tmp_path))
        await asyncio.sleep(5)
        assert second.state(tmp_path / "api").pid == 1000
        assert len(processes.started) == 1
        await second.stop(tmp_path / "api")
        assert processes.running == {}

    run_virtual(story())


@pytest.mark.parametrize("same_daemon", [True, False])
def test_one_that_should_run_otherwise_is_ended_first(tmp_path: Path, same_daemon: bool) -> None:
    async def story() -> None:
        processes = FakeProcesses()
        file = tmp_path / "cert"
        file.write_text("old")
        one = Supervisor(processes, LoopClock())
        await one.keep(replace(program(tmp_path), files=(file,)))
        await asyncio.sleep(5)
        file.write_text("new")
        if not same_daemon:
            await lose_power()
        two = one if same_daemon else Supervisor(processes, LoopClock())
        await two.keep(replace(program(tmp_path), files=(file,)))
        await asyncio.sleep(5)
        assert list(processes.running) == [1001]
        assert processes.most == {"api": 1}
        await two.stop(tmp_path / "api")

    run_virtual(story())


def test_one_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    async def story() -> None:
        processes = FakeProcesses(fails=2)
        keeper = Supervisor(processes, LoopClock())
        await keeper.keep(program(tmp_path))
        await asyncio.sleep(0.5)
        assert "No space left" in keeper.state(tmp_path / "api").message
        await asyncio.sleep(10)
        assert keeper.state(tmp_path / "api").healthy
        await keeper.stop(tmp_path / "api")

    run_virtual(story())


def test_one_that_is_not_kept_is_ended_by_its_page(tmp_path: Path) -> None:
    async def story() -> None:
        processes = FakeProcesses()
        processes.start(program(tmp_path).launch_spec())
        await Supervisor(processes, LoopClock()).stop(tmp_path / "api")
        assert processes.running == {}
        await Supervisor(processes, LoopClock()).stop(tmp_path / "api")  # harmless to repeat

    run_virtual(story())
