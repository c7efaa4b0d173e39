"""
Benchmark: the embedded API server with many objects: memory, start time, list time, watch fan-out.

Run: ``python bench/apiserver_scale.py [--objects 20000]``. Objects are custom resources of 2 kB in
a SQLite file, without HTTP; filling and serving run in separate processes. Limits are ratios:
memory per object to its JSON size, CPU of a start to reading the file, a change for 50 watches to
one for one.
"""

import argparse
import asyncio
import gc
import sqlite3
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.testing.api_calls import CRDS, WIDGETS, ApiClient, make_crd, widget

MOST_MEMORY, MOST_START, MOST_FAN_OUT = 2.5, 12.0, 15.0
TEXT = {"type": "string"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "text": TEXT,
                "cores": {"type": "integer", "default": 2},
                "tags": {"type": "array", "items": TEXT},
            },
        }
    },
}


def memory() -> int:
    """Resident bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def fill(path: Path, count: int) -> float:
    async with EmbeddedApiServer(path=path) as api_server:
        api = ApiClient(api_server)
        await api.post(CRDS, make_crd(SCHEMA))
        began = time.perf_counter()
        for first in range(0, count, 200):
            bodies = (
                widget(f"w{n:06}", {"text": "x" * 1500, "tags": ["a", "b"]})
                for n in range(first, min(first + 200, count))
            )
            await asyncio.gather(*(api.post(WIDGETS, body) for body in bodies))
        return count / (time.perf_counter() - began)


def raw_read(path: Path) -> float:
    """CPU seconds of reading every row."""
    began = time.process_time()
    with sqlite3.connect(path) as db:
        for _ in db.execute(
            "SELECT revision, store, key, deleted, body FROM log ORDER BY revision"
        ):
            pass
    return time.process_time() - began


async def fan_out_seconds(api: ApiClient, watchers: int, changes: int) -> float:
    """CPU seconds until every watch has every change."""
    since = (await api.get(WIDGETS, limit=1)).object["metadata"]["resourceVersion"]
    streams = [await api.watch(WIDGETS, resourceVersion=since) for _ in range(watchers)]

    async def drain(stream: Any) -> None:
        for _ in range(changes):
            await anext(stream)

    began = time.process_time()
    async with asyncio.TaskGroup() as group:
        for stream in streams:
            group.create_task(drain(stream))
        for n in range(changes):
            mark = {"metadata": {"labels": {"n": f"{watchers}-{n}"}}}
            await api.patch(f"{WIDGETS}/w{n:06}", mark)
    return time.process_time() - began


async def serve(path: Path, count: int) -> dict[str, float]:
    before, began, busy = memory(), time.perf_counter(), time.process_time()
    async with EmbeddedApiServer(path=path) as api_server:
        start, start_cpu = time.perf_counter() - began, time.process_time() - busy
        held = memory() - before
        api, table = ApiClient(api_server), api_server.core.cache.table("widgets.example.com")
        stored = sum(len(r.body) for r in table.scan())
        began = time.perf_counter()
        await api.get(WIDGETS, limit=500)
        page = time.perf_counter() - began
        one, fifty = await fan_out_seconds(api, 1, 200), await fan_out_seconds(api, 50, 200)
    return {
        "bytes": stored / count,
        "memory": held / stored,
        "start": start,
        "start CPU": start_cpu,
        "page": page,
        "fan-out": fifty / one,
    }


def run_fill(path: Path, count: int) -> float:
    return asyncio.run(fill(path, count))


def run_serve(path: Path, count: int) -> dict[str, float]:
    return asyncio.run(serve(path, count))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--objects", type=int, default=20_000)
    count = parser.parse_args().objects
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            rate = pool.submit(run_fill, path, count).result()
            raw = pool.submit(raw_read, path).result()
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            found = pool.submit(run_serve, path, count).result()
    start = found["start CPU"] / raw
    print(f"{count} objects of {found['bytes']:.0f} bytes, created at {rate:.0f}/s, 200 at once")
    print(f"memory / stored bytes        {found['memory']:6.2f}x  (limit {MOST_MEMORY}x)")
    print(
        f"start / reading the file     {start:6.2f}x  (limit {MOST_START}x; {found['start']:.2f} s)"
    )
    print(f"50 watches / one watch       {found['fan-out']:6.2f}x  (limit {MOST_FAN_OUT}x)")
    print(f"a page of 500                {found['page'] * 1000:6.1f} ms")
    fits = found["memory"] <= MOST_MEMORY and start <= MOST_START
    return 0 if fits and found["fan-out"] <= MOST_FAN_OUT else 1


if __name__ == "__main__":
    sys.exit(main())
