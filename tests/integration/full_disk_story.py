"""
The store on a file system that is really full: ``python full_disk_story.py FOLDER``.

``test_store_full_disk.py`` runs it in a mount namespace of its own, where FOLDER is a small tmpfs;
so nothing stays mounted whatever happens. It ends with 0 and one line, or with a traceback.
"""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from moxwell.api.kinds import Resource
from moxwell.clock import SystemClock
from moxwell.embedded.apiserver.server import Store
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.errors import Answered
from moxwell.kube.transport import HttpTransport
from moxwell.testing.api_calls import CM, Asks, configmap

CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
BALLAST_BYTES = 2 * 1024 * 1024
TEXT = "x" * 3000
SENTENCE = "the disk is full"


class Told:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.heard = asyncio.Event()

    async def listen(self, events: Any) -> None:
        async for event in events:
            if event["type"] == "ADDED":
                self.names.append(event["object"]["metadata"]["name"])
                self.heard.set()

    async def until(self, names: set[str]) -> None:
        while set(self.names) != names:
            self.heard.clear()
            await self.heard.wait()


async def fill(asks: Asks, mark: str, at_once: int) -> tuple[set[str], list[Any]]:
    """Write in batches until one is refused: what was acknowledged, and the refusals."""
    done: set[str] = set()
    for batch in range(10_000):
        names = [f"{mark}-{batch}-{n}" for n in range(at_once)]
        bodies = [configmap(name, text=TEXT) for name in names]
        answers = await asyncio.gather(*(asks.post(CM, body) for body in bodies))
        done |= {n for n, a in zip(names, answers, strict=True) if a.status == 201}
        if refused := [a for a in answers if a.status != 201]:
            return done, refused
    raise AssertionError("the disk never filled up")


async def listed(asks: Asks) -> set[str]:
    items = (await asks.get(CM)).object["items"]
    return {i["metadata"]["name"] for i in items} - {"kube-root-ca.crt"}


def check_refusal(answer: Any) -> None:
    status = answer.object
    assert answer.status == 507, answer
    assert status["kind"] == "Status", status
    assert status["status"] == "Failure", status
    assert SENTENCE in status["message"], status
    assert "make room" in status["message"], status


async def alive(folder: Path) -> None:
    """Full, read on, watch on, room made, write on, full again by many at once."""
    path, ballast = folder / "db.sqlite", folder / "ballast"
    ballast.write_bytes(b"\0" * BALLAST_BYTES)
    async with Store(path=path) as store:
        asks, told = Asks(store), Told()
        since = (await asks.get(CM)).object["metadata"]["resourceVersion"]
        listening = asyncio.create_task(told.listen(await asks.watch(CM, resourceVersion=since)))
        there, refusals = await fill(asks, "one", 1)
        check_refusal(refusals[0])
        assert await listed(asks) == there
        await told.until(there)
        for _ in range(20):  # it stays refused, and stays readable
            check_refusal(await asks.post(CM, configmap("no", text=TEXT)))
            assert (await asks.get(f"{CM}/{min(there)}")).status == 200
        ballast.unlink()
        more, refusals = await fill(asks, "many", 64)
        assert more, "writes did not go on"
        for refused in refusals:
            check_refusal(refused)
        there |= more
        assert await listed(asks) == there
        await told.until(there)
        assert len(told.names) == len(there), "somebody was told twice"
        listening.cancel()
        await asyncio.wait([listening])
    await reopened(path, there)


async def reopened(path: Path, there: set[str], unsure: int = 0) -> None:
    """A start on the full disk shows what was acknowledged, and at most what was under way."""
    check(path)
    async with Store(path=path) as store:
        found = await listed(Asks(store))
    assert there <= found, f"lost: {sorted(there - found)[:5]}"
    assert len(found - there) <= unsure, f"invented: {sorted(found - there)[:5]}"


def check(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA locking_mode=EXCLUSIVE")  # else it wants a file beside, on a full disk
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def write_for_ever(path: Path) -> None:
    """32 writers who say what was acknowledged, and ``full`` when refused."""
    async with Store(path=path) as store:
        asks = Asks(store)

        async def write(writer: int) -> None:
            number = 0
            while True:
                number += 1
                name = f"k{writer}-{number}"
                answer = await asks.post(CM, configmap(name, text=TEXT))
                sys.stdout.write(f"{name if answer.status == 201 else 'full'}\n")
                sys.stdout.flush()

        async with asyncio.TaskGroup() as group:
            for writer in range(32):
                group.create_task(write(writer))


def killed(folder: Path) -> None:
    """kill -9 while the disk is full and writers go on trying."""
    path, ballast = folder / "killed.sqlite", folder / "ballast"
    ballast.write_bytes(b"\0" * BALLAST_BYTES)
    command = [sys.executable, __file__, "--write", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said: list[str] = []
        while said.count("full") < 300:
            line = child.stdout.readline()
            assert line, "the writers have ended"
            said.append(line.strip())
        os.kill(child.pid, signal.SIGKILL)
        said += [line.strip() for line in child.stdout if line.endswith("\n")]
    acknowledged = set(said) - {"full", ""}
    assert acknowledged
    asyncio.run(reopened(path, acknowledged, unsure=32))
    ballast.unlink()
    asyncio.run(goes_on(path))


async def goes_on(path: Path) -> None:
    async with Store(path=path) as store:
        assert (await Asks(store).post(CM, configmap("after", text=TEXT))).status == 201


def moxwell(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """The command, with its state in the folder."""
    env = {**os.environ, "XDG_STATE_HOME": str(folder)}
    command = [sys.executable, "-m", "moxwell", *args, "--name", "full"]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=300
    )


def fill_up(ballast: Path) -> None:
    """Write until nothing more fits."""
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 65536)
    with suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(b"\0" * 512)


def spaced(name: str, size: int) -> dict[str, Any]:
    made: dict[str, Any] = configmap(name, text="x" * size)
    return {**made, "metadata": {**made["metadata"], "namespace": "default"}}


async def through_the_daemon(folder: Path) -> None:
    """Refused with a sentence, alive, and writing on when there is room."""
    path = folder / "moxwell" / "full" / "kubeconfig"
    access = kubeconfig.load([path]).access(SystemClock(), {})
    async with HttpTransport(access) as transport:
        kube = Kube(transport)
        fill_up(folder / "ballast")
        said = ""
        for number in range(200):
            try:
                await kube.create(spaced(f"big{number}", 60_000), CONFIGMAPS)
            except Answered as error:
                said = str(error)
                break
        assert SENTENCE in said, said
        assert "make room" in said, said
        there = {o["metadata"]["name"] for o in (await kube.list(CONFIGMAPS, "default")).items}
        assert moxwell(folder, "status").returncode == 0
        (folder / "ballast").unlink()
        await kube.create(spaced("after", 1), CONFIGMAPS)
        after = {o["metadata"]["name"] for o in (await kube.list(CONFIGMAPS, "default")).items}
        assert after == there | {"after"}


def daemon(folder: Path) -> None:
    started = moxwell(folder, "up", "--no-sample")
    assert started.returncode == 0, started.stderr
    try:
        asyncio.run(through_the_daemon(folder))
    finally:
        moxwell(folder, "down")
    fill_up(folder / "ballast")
    refused = moxwell(folder, "up", "--no-sample")
    moxwell(folder, "down")
    assert refused.returncode == 1
    assert "make room" in refused.stderr, refused.stderr
    sys.stdout.write("told, alive, and written on\n")


def main(folder: Path) -> None:
    asyncio.run(alive(folder))
    for file in folder.iterdir():
        file.unlink()
    killed(folder)
    sys.stdout.write("nothing lost, nothing invented\n")


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        asyncio.run(write_for_ever(Path(sys.argv[2])))
    elif sys.argv[1] == "--daemon":
        daemon(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]))
