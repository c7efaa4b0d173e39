"""
The embedded API with many objects: what one costs in memory, how long a start and a list take.

Run: ``python bench/store_scale.py [--objects 20000]``. Objects are custom resources of 2 kB in
a SQLite file, without HTTP; filling and serving are processes of their own. The limits are ratios:
memory per object against its JSON, the CPU of a start against that of merely reading the file, a
change told to 50 watchers against one.
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

from moxwell.embedded.apiserver.server import Store
from moxwell.testing.api_calls import CRDS, WIDGETS, Asks, definition, widget

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
    async with Store(path=path) as store:
        asks = Asks(store)
        await asks.post(CRDS, definition(SCHEMA))
        began = time.perf_counter()
        for first in range(0, count, 200):
            bodies = (
                widget(f"w{n:06}", {"text": "x" * 1500, "tags": ["a", "b"]})
                for n in range(first, min(first + 200, count))
            )
            await asyncio.gather(*(asks.post(WIDGETS, body) for body in bodies))
        return count / (time.perf_counter() - began)


def raw_read(path: Path) -> float:
    """CPU seconds of merely reading every row."""
    began = time.process_time()
    with sqlite3.connect(path) as db:
        for _ in db.execute(
            "SELECT revision, store, key, deleted, body FROM log ORDER BY revision"
        ):
            pass
    return time.process_time() - began


async def told(asks: Asks, watchers: int, changes: int) -> float:
    """CPU seconds until everybody knows of every change."""
    since = (await asks.get(WIDGETS, limit=1)).object["metadata"]["resourceVersion"]
    streams = [await asks.watch(WIDGETS, resourceVersion=since) for _ in range(watchers)]

    async def drain(stream: Any) -> None:
        for _ in range(changes):
            await anext(stream)

    began = time.process_time()
    async with asyncio.TaskGroup() as group:
        for stream in streams:
            group.create_task(drain(stream))
        for n in range(changes):
            mark = {"metadata": {"labels": {"n": f"{watchers}-{n}"}}}
            await asks.patch(f"{WIDGETS}/w{n:06}", mark)
    return time.process_time() - began


async def serve(path: Path, count: int) -> dict[str, float]:
    before, began, busy = memory(), time.perf_counter(), time.process_time()
    async with Store(path=path) as store:
        start, start_cpu = time.perf_counter() - began, time.process_time() - busy
        held = memory() - before
        asks, table = Asks(store), store.core.state.table("widgets.example.com")
        stored = sum(len(r.body) for r in table.scan())
        began = time.perf_counter()
        await asks.get(WIDGETS, limit=500)
        page = time.perf_counter() - began
        one, fifty = await told(asks, 1, 200), await told(asks, 50, 200)
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
    print(f"told 50 / told one           {found['fan-out']:6.2f}x  (limit {MOST_FAN_OUT}x)")
    print(f"a page of 500                {found['page'] * 1000:6.1f} ms")
    fits = found["memory"] <= MOST_MEMORY and start <= MOST_START
    return 0 if fits and found["fan-out"] <= MOST_FAN_OUT else 1


if __name__ == "__main__":
    sys.exit(main())
