"""The supervisor of the daemon: when it restarts, what it records, how it ends."""

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moxwell.app.restarts import read_restarts
from moxwell.app.supervise import DaemonSupervisor, Exited, restart_after


@pytest.mark.parametrize(
    "code, seconds, restarts, failures, stopping, pause",
    [
        pytest.param(0, 5.0, 0, 1, False, None, id="it ended by itself"),
        pytest.param(3, 5.0, 0, 1, False, None, id="it cannot start"),
        pytest.param(3, 90.0, 0, 1, False, 1.0, id="an error after it had started"),
        pytest.param(3, 5.0, 1, 2, False, 2.0, id="it cannot start again"),
        pytest.param(-11, 5.0, 0, 1, False, 1.0, id="a segmentation fault"),
        pytest.param(-9, 5.0, 4, 4, False, 8.0, id="killed again and again"),
        pytest.param(-9, 5.0, 40, 40, False, 60.0, id="never rarer than each minute"),
        pytest.param(-15, 5.0, 0, 1, True, None, id="terminated"),
    ],
)
def test_when_the_daemon_is_restarted(
    code: int, seconds: float, restarts: int, failures: int, stopping: bool, pause: float | None
) -> None:
    assert restart_after(Exited(code, seconds, restarts, failures, stopping)) == pause


class InstantClock:
    """A clock that does not wait."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> datetime:
        return datetime(2026, 5, 1, 12, 0, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


CRASH_TWICE = """
import os, signal, sys
from pathlib import Path
file = Path(sys.argv[1])
count = int(file.read_text()) if file.exists() else 0
file.write_text(str(count + 1))
if count < 2:
    os.kill(os.getpid(), signal.SIGSEGV)
"""


async def test_a_crash_is_recorded_and_the_daemon_started_again(tmp_path: Path) -> None:
    clock, record = InstantClock(), tmp_path / "restarts.json"
    argv = (sys.executable, "-c", CRASH_TWICE, str(tmp_path / "count"))
    assert await DaemonSupervisor(argv, record, clock).run() == 0
    assert (tmp_path / "count").read_text() == "3"
    assert clock.slept == [1.0, 2.0]
    found = read_restarts(record)
    assert (found.count, found.last_exit) == (2, "was killed by SIGSEGV")
    assert found.at == "2026-05-01 12:00:00 UTC"


WAIT = "import signal, sys; print('up', flush=True); signal.pause()"


async def test_stop_ends_the_child_and_the_supervisor(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", WAIT)
    supervisor = DaemonSupervisor(argv, tmp_path / "restarts.json", InstantClock())
    running = asyncio.create_task(supervisor.run())
    await asyncio.sleep(0)
    supervisor.stop()
    assert await running == 0
    assert read_restarts(tmp_path / "restarts.json").count == 0
