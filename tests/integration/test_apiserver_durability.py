"""Durability of the revision log: kill -9, a full disk, restarts."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.testing.api_calls import CM, ApiClient, configmap

WRITERS = 32
MANY = 20_000

CHILD = """
import asyncio, sys
from pathlib import Path
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.testing.api_calls import CM, ApiClient, configmap

async def write(asks, writer):
    n = 0
    while True:
        n += 1
        name = f"w{writer}-{n}"
        answer = await asks.post(CM, configmap(name, n=str(n)))
        assert answer.status == 201, answer
        version = answer.object["metadata"]["resourceVersion"]
        sys.stdout.write(f"{name} {version}\\n")
        sys.stdout.flush()

async def main():
    async with EmbeddedApiServer(path=Path(sys.argv[1])) as store:
        async with asyncio.TaskGroup() as group:
            for writer in range(int(sys.argv[2])):
                group.create_task(write(ApiClient(store), writer))

asyncio.run(main())
"""


def _killed(path: Path, lines: int) -> dict[str, str]:
    """
    Run writers and kill them after a number of acknowledgements; returns what was acknowledged.
    """
    args = [sys.executable, "-c", CHILD, str(path), str(WRITERS)]
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        acked = [child.stdout.readline() for _ in range(lines)]
        os.kill(child.pid, signal.SIGKILL)
        acked += child.stdout.readlines()
    found = dict(line.split() for line in acked if line.endswith("\n"))
    assert len(found) >= lines
    return found


async def _stored(path: Path) -> dict[str, str]:
    async with EmbeddedApiServer(path=path) as api_server:
        items = (await ApiClient(api_server).get(CM)).object["items"]
    return {i["metadata"]["name"]: i["metadata"]["resourceVersion"] for i in items}


def test_kill_9_under_32_writers_keeps_exactly_the_acknowledged_writes(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    acked = _killed(path, 600)
    found = asyncio.run(_stored(path))
    assert {name: found.get(name) for name in acked} == acked
    # A writer has at most one write in flight, so no more than that may be stored unacknowledged.
    assert len(found) - len(acked) <= WRITERS
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def _fill(api: ApiClient) -> tuple[list[str], Any]:
    """Write until a write fails; returns what was acknowledged, and the failure."""
    done: list[str] = []
    for n in range(10_000):
        answer = await api.post(CM, configmap(f"c{n}", text="x" * 4000))
        if answer.status != 201:
            return done, answer
        done.append(f"c{n}")
    raise AssertionError("the disk never filled up")


async def test_a_full_disk_is_reported_and_corrupts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    async with EmbeddedApiServer(path=path, max_pages=400) as api_server:
        api = ApiClient(api_server)
        done, error_response = await _fill(api)
        assert error_response.status == 507
        assert "the disk is full" in error_response.object["message"]
        listed = (await api.get(CM)).object["items"]  # reads continue and show what is on disk
        assert [i["metadata"]["name"] for i in listed] == sorted(done)
        assert (await api.delete(f"{CM}/{done[0]}")).status in (200, 507)
    assert set(await _stored(path)) >= set(done[1:])


async def test_concurrent_writes_on_a_full_disk_all_fail(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    async with EmbeddedApiServer(path=path, max_pages=300) as api_server:
        api = ApiClient(api_server)
        bodies = [configmap(f"c{n}", text="x" * 4000) for n in range(600)]
        answers = await asyncio.gather(*(api.post(CM, body) for body in bodies))
        acked = {
            b["metadata"]["name"] for b, a in zip(bodies, answers, strict=True) if a.status == 201
        }
        assert {a.status for a in answers} <= {201, 507}
    assert set(await _stored(path)) == acked


async def test_the_object_that_caused_a_conflict_is_readable(tmp_path: Path) -> None:
    """A client that loses a race and reads again sees the winning object."""
    async with EmbeddedApiServer(path=tmp_path / "db.sqlite") as api_server:
        api = ApiClient(api_server)
        made = (await api.post(CM, configmap("a"))).object

        async def contend(number: int) -> int:
            answer = await api.put(f"{CM}/a", {**made, "data": {"n": str(number)}})
            seen = (await api.get(f"{CM}/a")).object["metadata"]["resourceVersion"]
            assert seen != made["metadata"]["resourceVersion"]
            return answer.status

        codes = await asyncio.gather(*(contend(n) for n in range(8)))
        assert sorted(codes) == [200] + 7 * [409]


async def test_a_watch_resumes_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    async with EmbeddedApiServer(path=path) as api_server:
        api = ApiClient(api_server)
        start = (await api.get(CM)).object["metadata"]["resourceVersion"]
        await api.post(CM, configmap("a"))
        await api.delete(f"{CM}/a")
        await api.post(CM, configmap("b"))
    async with EmbeddedApiServer(path=path) as api_server:
        events = await ApiClient(api_server).watch(CM, resourceVersion=start)
        seen = [await anext(events) for _ in range(3)]
    found = [(e["type"], e["object"]["metadata"]["name"]) for e in seen]
    assert found == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b")]


@pytest.mark.slow
async def test_a_restart_with_20000_objects_serves_them_all(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    async with EmbeddedApiServer(path=path) as api_server:
        api = ApiClient(api_server)
        for batch in range(0, MANY, 500):
            names = range(batch, batch + 500)
            await asyncio.gather(*(api.post(CM, configmap(f"c{n:05}", k="v")) for n in names))
    async with EmbeddedApiServer(path=path) as api_server:
        listed = (await ApiClient(api_server).get(CM)).object["items"]
        page = (await ApiClient(api_server).get(CM, limit=500)).object
    assert len(listed) == MANY
    assert page["metadata"]["remainingItemCount"] == MANY - 500
