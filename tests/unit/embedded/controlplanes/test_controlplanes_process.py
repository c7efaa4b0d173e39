"""Processes of this machine: found again, never a stranger's, nothing left. They are small ones."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moxwell.clock import SystemClock
from moxwell.embedded.controlplanes.supervision import process
from moxwell.embedded.controlplanes.supervision.process import LaunchSpec, Processes, RunningProcess

Change = Callable[[Path], object]


@pytest.fixture
def processes() -> Processes:
    return Processes(SystemClock(), {"PATH": os.environ["PATH"]})


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Whatever a failing test leaves there is ended."""
    yield tmp_path
    asyncio.run(process.terminate_all(tmp_path, SystemClock()))


def job(folder: Path, *argv: str, digest: str = "m1", name: str = "api") -> LaunchSpec:
    return LaunchSpec(name, argv or ("sleep", "60"), folder, digest)


def is_there(running: RunningProcess) -> bool:
    return Path(f"/proc/{running.pid}").exists()


async def found(folder: Path, stem: str = "api") -> RunningProcess:
    """The page is written by the program itself, a moment after its start."""
    while True:
        running = process.find(folder / f"{stem}.run")
        if running is not None:
            return running
        await asyncio.sleep(0.01)


async def test_a_program_is_found_by_its_page_and_ended(processes: Processes, folder: Path) -> None:
    running = processes.start(job(folder))
    assert await found(folder) == running
    waiting = asyncio.create_task(processes.wait(running))
    await processes.terminate(running)
    assert await waiting in (-15, None)
    assert process.find(folder / "api.run") is None
    assert not is_there(running)


async def test_one_that_will_not_hear_is_killed(
    processes: Processes, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.3)
    deaf = ("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    running = processes.start(job(folder, *deaf))
    while "ready" not in process.tail(folder / "api.log"):
        await asyncio.sleep(0.01)
    await processes.terminate(running)
    assert not is_there(running)


async def test_what_it_says_goes_to_its_log_and_its_code_is_known(
    processes: Processes, folder: Path
) -> None:
    running = processes.start(job(folder, "sh", "-c", "echo out; echo err >&2; exit 7"))
    assert await processes.wait(running) == 7
    assert (folder / "api.log").read_text() == "out\nerr\n"
    assert (folder / "api.log").stat().st_mode & 0o777 == 0o600
    assert process.find(folder / "api.run") is None


async def test_a_program_gets_no_secret_of_ours(processes: Processes, folder: Path) -> None:
    running = processes.start(job(folder, "env"))
    await processes.wait(running)
    names = {line.partition("=")[0] for line in (folder / "api.log").read_text().splitlines()}
    assert names <= {"PATH", "PWD", "OLDPWD", "_", "SHLVL"}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda page: page.write_text(""), id="an empty page"),
        pytest.param(lambda page: page.write_text("m1\nanother boot\n" + _stat(page)), id="a boot"),
        pytest.param(lambda page: page.write_text(_older(page)), id="another birth"),
        pytest.param(lambda page: page.write_text("what\never\n"), id="nonsense"),
        pytest.param(lambda page: page.unlink(), id="no page"),
    ],
)
def test_a_stranger_is_left_alone(processes: Processes, folder: Path, change: Change) -> None:
    """A page whose process is another one by now ends nobody."""
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            stat = Path(f"/proc/{stranger.pid}/stat").read_text().strip()
            page = folder / "api.run"
            page.write_text(f"m1\n{boot}\n{stat}\n")
            assert process.find(page) is not None  # as it stands it would be ours
            change(page)
            assert process.find(page) is None
            assert asyncio.run(process.terminate_all(folder, SystemClock())) == 0
            asyncio.run(processes.terminate(RunningProcess(stranger.pid, 1, "m1")))
            assert stranger.poll() is None
        finally:
            stranger.kill()


def _stat(page: Path) -> str:
    return page.read_text().splitlines()[2]


def _older(page: Path) -> str:
    mark, boot, stat = page.read_text().splitlines()
    head, _, tail = stat.rpartition(")")
    fields = tail.split()
    fields[19] = str(int(fields[19]) - 1)
    return f"{mark}\n{boot}\n{head}) {' '.join(fields)}\n"


async def test_everything_left_is_ended_the_store_last(processes: Processes, folder: Path) -> None:
    (folder / "a").mkdir()
    lives = [
        processes.start(job(folder / "a")),
        processes.start(job(folder, name="etcd")),
        processes.start(job(folder, name="other")),
    ]
    for running, (where, stem) in zip(
        lives, [(folder / "a", "api"), (folder, "etcd"), (folder, "other")], strict=True
    ):
        assert await found(where, stem) == running
    assert await process.terminate_all(folder, SystemClock()) == 3
    assert list(process.run_files(folder)) == []
    for running in lives:
        assert not is_there(running)


def test_a_log_is_bounded(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    log.write_bytes(b"old\n" * 500 + b"new\n" * 500)
    process.rotate_log(log, 10_000)
    assert log.stat().st_size == 4000
    process.rotate_log(log, 3_000)
    assert log.stat().st_size == 0
    kept = tmp_path / "api.log.1"
    assert kept.read_bytes() == b"new\n" * 375
    assert kept.stat().st_mode & 0o777 == 0o600


async def test_a_log_may_be_bounded_while_it_is_written(processes: Processes, folder: Path) -> None:
    lines = ("sh", "-c", "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two")
    running = processes.start(job(folder, *lines))
    while not process.tail(folder / "api.log"):
        await asyncio.sleep(0.01)
    process.rotate_log(folder / "api.log", 2)
    (folder / "go").touch()
    await processes.wait(running)
    assert (folder / "api.log").read_text() == "two\n"
