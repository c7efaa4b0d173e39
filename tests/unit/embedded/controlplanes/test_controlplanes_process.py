"""Processes of this machine: found again, never a stranger's, nothing left. They are small ones."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moxwell.clock import SystemClock
from moxwell.embedded.controlplanes.binaries import process
from moxwell.embedded.controlplanes.binaries.process import Job, Life, Processes

Change = Callable[[Path], object]


@pytest.fixture
def hands() -> Processes:
    return Processes(SystemClock(), {"PATH": os.environ["PATH"]})


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Whatever a failing test leaves there is ended."""
    yield tmp_path
    asyncio.run(process.end_all(tmp_path, SystemClock()))


def job(folder: Path, *argv: str, mark: str = "m1", stem: str = "api") -> Job:
    return Job(stem, argv or ("sleep", "60"), folder, mark)


def is_there(life: Life) -> bool:
    return Path(f"/proc/{life.pid}").exists()


async def found(folder: Path, stem: str = "api") -> Life:
    """The page is written by the program itself, a moment after its start."""
    while True:
        life = process.find(folder / f"{stem}.run")
        if life is not None:
            return life
        await asyncio.sleep(0.01)


async def test_a_program_is_found_by_its_page_and_ended(hands: Processes, folder: Path) -> None:
    life = hands.start(job(folder))
    assert await found(folder) == life
    waiting = asyncio.create_task(hands.ended(life))
    await hands.end(life)
    assert await waiting in (-15, None)
    assert process.find(folder / "api.run") is None
    assert not is_there(life)


async def test_one_that_will_not_hear_is_killed(
    hands: Processes, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.3)
    deaf = ("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    life = hands.start(job(folder, *deaf))
    while "ready" not in process.tail(folder / "api.log"):
        await asyncio.sleep(0.01)
    await hands.end(life)
    assert not is_there(life)


async def test_what_it_says_goes_to_its_log_and_its_code_is_known(
    hands: Processes, folder: Path
) -> None:
    life = hands.start(job(folder, "sh", "-c", "echo out; echo err >&2; exit 7"))
    assert await hands.ended(life) == 7
    assert (folder / "api.log").read_text() == "out\nerr\n"
    assert (folder / "api.log").stat().st_mode & 0o777 == 0o600
    assert process.find(folder / "api.run") is None


async def test_a_program_gets_no_secret_of_ours(hands: Processes, folder: Path) -> None:
    life = hands.start(job(folder, "env"))
    await hands.ended(life)
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
def test_a_stranger_is_left_alone(hands: Processes, folder: Path, change: Change) -> None:
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
            assert asyncio.run(process.end_all(folder, SystemClock())) == 0
            asyncio.run(hands.end(Life(stranger.pid, 1, "m1")))
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


async def test_everything_left_is_ended_the_store_last(hands: Processes, folder: Path) -> None:
    (folder / "a").mkdir()
    lives = [
        hands.start(job(folder / "a")),
        hands.start(job(folder, stem="etcd")),
        hands.start(job(folder, stem="other")),
    ]
    for life, (where, stem) in zip(
        lives, [(folder / "a", "api"), (folder, "etcd"), (folder, "other")], strict=True
    ):
        assert await found(where, stem) == life
    assert await process.end_all(folder, SystemClock()) == 3
    assert list(process.pages(folder)) == []
    for life in lives:
        assert not is_there(life)


def test_a_log_is_bounded(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    log.write_bytes(b"old\n" * 500 + b"new\n" * 500)
    process.bound(log, 10_000)
    assert log.stat().st_size == 4000
    process.bound(log, 3_000)
    assert log.stat().st_size == 0
    kept = tmp_path / "api.log.1"
    assert kept.read_bytes() == b"new\n" * 375
    assert kept.stat().st_mode & 0o777 == 0o600


async def test_a_log_may_be_bounded_while_it_is_written(hands: Processes, folder: Path) -> None:
    lines = ("sh", "-c", "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two")
    life = hands.start(job(folder, *lines))
    while not process.tail(folder / "api.log"):
        await asyncio.sleep(0.01)
    process.bound(folder / "api.log", 2)
    (folder / "go").touch()
    await hands.ended(life)
    assert (folder / "api.log").read_text() == "two\n"
