"""
The API server on a full file system: ``python full_disk_story.py FOLDER``.

``test_apiserver_full_disk.py`` runs it in a mount namespace where FOLDER is a small tmpfs. It exits
with 0 and one line, or with a traceback.
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
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.errors import ApiServerAnswer
from moxwell.kube.transport import KubeTransport
from moxwell.testing.api_calls import CM, ApiClient, configmap

CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
BALLAST_BYTES = 2 * 1024 * 1024
TEXT = "x" * 3000
MESSAGE = "the disk is full"


class RecordedWatch:
    """A watch that records the events it gets."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.events = asyncio.Event()

    async def listen(self, events: Any) -> None:
        async for event in events:
            if event["type"] == "ADDED":
                self.names.append(event["object"]["metadata"]["name"])
                self.events.set()

    async def until(self, names: set[str]) -> None:
        while set(self.names) != names:
            self.events.clear()
            await self.events.wait()


async def fill(api: ApiClient, mark: str, at_once: int) -> tuple[set[str], list[Any]]:
    """Write in batches until a write fails; returns what was acknowledged, and the failures."""
    done: set[str] = set()
    for batch in range(10_000):
        names = [f"{mark}-{batch}-{n}" for n in range(at_once)]
        bodies = [configmap(name, text=TEXT) for name in names]
        answers = await asyncio.gather(*(api.post(CM, body) for body in bodies))
        done |= {n for n, a in zip(names, answers, strict=True) if a.status == 201}
        if failed := [a for a in answers if a.status != 201]:
            return done, failed
    raise AssertionError("the disk never filled up")


async def listed(api: ApiClient) -> set[str]:
    items = (await api.get(CM)).object["items"]
    return {i["metadata"]["name"] for i in items} - {"kube-root-ca.crt"}


def check_failure(answer: Any) -> None:
    status = answer.object
    assert answer.status == 507, answer
    assert status["kind"] == "Status", status
    assert status["status"] == "Failure", status
    assert MESSAGE in status["message"], status
    assert "free space" in status["message"], status


async def fill_and_recover(folder: Path) -> None:
    """Fill the disk, read and watch on, free space, write again, fill it concurrently."""
    path, ballast = folder / "db.sqlite", folder / "ballast"
    ballast.write_bytes(b"\0" * BALLAST_BYTES)
    async with EmbeddedApiServer(path=path) as api_server:
        api, watched = ApiClient(api_server), RecordedWatch()
        since = (await api.get(CM)).object["metadata"]["resourceVersion"]
        listening = asyncio.create_task(watched.listen(await api.watch(CM, resourceVersion=since)))
        stored, failures = await fill(api, "one", 1)
        check_failure(failures[0])
        assert await listed(api) == stored
        await watched.until(stored)
        for _ in range(20):  # writes keep failing and reads keep working
            check_failure(await api.post(CM, configmap("no", text=TEXT)))
            assert (await api.get(f"{CM}/{min(stored)}")).status == 200
        ballast.unlink()
        more, failures = await fill(api, "many", 64)
        assert more, "writes did not go on"
        for failed in failures:
            check_failure(failed)
        stored |= more
        assert await listed(api) == stored
        await watched.until(stored)
        assert len(watched.names) == len(stored), "an event was sent twice"
        listening.cancel()
        await asyncio.wait([listening])
    await reopened(path, stored)


async def reopened(path: Path, stored: set[str], in_flight: int = 0) -> None:
    """Restart on the full disk: acknowledged objects exist, and at most those in flight."""
    check(path)
    async with EmbeddedApiServer(path=path) as api_server:
        found = await listed(ApiClient(api_server))
    assert stored <= found, f"lost: {sorted(stored - found)[:5]}"
    assert len(found - stored) <= in_flight, f"invented: {sorted(found - stored)[:5]}"


def check(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA locking_mode=EXCLUSIVE")  # otherwise SQLite needs a journal file
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def write_forever(path: Path) -> None:
    """Run 32 writers that print each acknowledgement, and ``full`` on failure."""
    async with EmbeddedApiServer(path=path) as api_server:
        api = ApiClient(api_server)

        async def write(writer: int) -> None:
            number = 0
            while True:
                number += 1
                name = f"k{writer}-{number}"
                answer = await api.post(CM, configmap(name, text=TEXT))
                sys.stdout.write(f"{name if answer.status == 201 else 'full'}\n")
                sys.stdout.flush()

        async with asyncio.TaskGroup() as group:
            for writer in range(32):
                group.create_task(write(writer))


def killed(folder: Path) -> None:
    """Kill -9 while the disk is full and writers retry."""
    path, ballast = folder / "killed.sqlite", folder / "ballast"
    ballast.write_bytes(b"\0" * BALLAST_BYTES)
    command = [sys.executable, __file__, "--write", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines: list[str] = []
        while lines.count("full") < 300:
            line = child.stdout.readline()
            assert line, "the writers have ended"
            lines.append(line.strip())
        os.kill(child.pid, signal.SIGKILL)
        lines += [line.strip() for line in child.stdout if line.endswith("\n")]
    acknowledged = set(lines) - {"full", ""}
    assert acknowledged
    asyncio.run(reopened(path, acknowledged, in_flight=32))
    ballast.unlink()
    asyncio.run(is_writable(path))


async def is_writable(path: Path) -> None:
    async with EmbeddedApiServer(path=path) as api_server:
        assert (await ApiClient(api_server).post(CM, configmap("after", text=TEXT))).status == 201


def moxwell(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """The moxwell command with its state in the folder."""
    env = {**os.environ, "XDG_STATE_HOME": str(folder)}
    command = [sys.executable, "-m", "moxwell", *args, "--name", "full"]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=300
    )


def fill_up(ballast: Path) -> None:
    """Write until the disk is full."""
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
    """Writes fail with a message, the daemon survives, and writes succeed after space is freed."""
    path = folder / "moxwell" / "full" / "kubeconfig"
    access = kubeconfig.load([path]).access(SystemClock(), {})
    async with KubeTransport(access) as transport:
        kube = Kube(transport)
        fill_up(folder / "ballast")
        message = ""
        for number in range(200):
            try:
                await kube.create(spaced(f"big{number}", 60_000), CONFIGMAPS)
            except ApiServerAnswer as error:
                message = str(error)
                break
        assert MESSAGE in message, message
        assert "free space" in message, message
        stored = {o["metadata"]["name"] for o in (await kube.list(CONFIGMAPS, "default")).items}
        assert moxwell(folder, "status").returncode == 0
        (folder / "ballast").unlink()
        await kube.create(spaced("after", 1), CONFIGMAPS)
        after = {o["metadata"]["name"] for o in (await kube.list(CONFIGMAPS, "default")).items}
        assert after == stored | {"after"}


def daemon(folder: Path) -> None:
    started = moxwell(folder, "up", "--no-demo")
    assert started.returncode == 0, started.stderr
    try:
        asyncio.run(through_the_daemon(folder))
    finally:
        moxwell(folder, "down")
    fill_up(folder / "ballast")
    failed = moxwell(folder, "up", "--no-demo")
    moxwell(folder, "down")
    assert failed.returncode == 75, failed.stderr  # EX_TEMPFAIL: free space and try again
    assert "No space left on device" in failed.stderr, failed.stderr
    sys.stdout.write("failed, survived and recovered\n")


def main(folder: Path) -> None:
    asyncio.run(fill_and_recover(folder))
    for file in folder.iterdir():
        file.unlink()
    killed(folder)
    sys.stdout.write("exactly the acknowledged writes\n")


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        asyncio.run(write_forever(Path(sys.argv[2])))
    elif sys.argv[1] == "--daemon":
        daemon(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]))
