"""
Nodes: what their identity costs Proxmox and the Kubernetes API, and what they cost idle.

Runs the cloud controllers, the embedded API and the simulator in one process on virtual time, so
that requests are counted exactly. Idle load is measured with few and with many nodes: it must be
the same, for a node that has its identity costs nothing to be looked at again.

    python bench/cloud.py [--few 10] [--many 1000]
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from dataclasses import dataclass

from moxwell.api.core.nodes import Node
from moxwell.controllers.cloud.node import plan
from moxwell.testing.cloud import World, world
from moxwell.testing.loop import run_virtual

MOST_REQUESTS, MOST_WRITES = 1.5, 2.0
IDLE_SECONDS = 1800.0
FIRST = 1000


@dataclass(frozen=True)
class Measured:
    """What some nodes cost."""

    count: int
    requests: Counter[str]
    writes: float
    seconds: float
    idle: float
    cpu: float

    @property
    def per_node(self) -> float:
        """Requests to Proxmox for each node, the list that is polled anyway left out."""
        rest = {k: n for k, n in self.requests.items() if k != "/cluster/resources"}
        return sum(rest.values()) / self.count


def kind_of(path: str) -> str:
    """Requests alike: numbers and names left out."""
    parts = path.strip("/").split("/")
    if parts[0] == "nodes":
        parts[1] = "N"
    return "/" + "/".join("ID" if p.isdigit() else p for p in parts)


def populate(w: World, count: int) -> None:
    """Guests of the world, made past the API."""
    for n in range(count):
        vmid = FIRST + n
        w.add_guest(vmid, f"n{n}", uuid_of(n))


def uuid_of(n: int) -> str:
    return f"10000000-0000-4000-8000-{n:012d}"


async def measure(count: int) -> Measured:
    """Let nodes join all at once, then leave them alone."""
    async with world() as w:
        populate(w, count)
        await asyncio.sleep(60)
        w.stage.transport.sent.clear()
        w.handler.seen.clear()
        began, cpu = w.stage.clock.monotonic(), time.process_time()
        for n in range(count):
            await w.join(f"n{n}", uuid=uuid_of(n))
        seconds = await _all_initialised(w) - began
        spent = time.process_time() - cpu
        requests = Counter(kind_of(path) for _, path in w.stage.transport.sent)
        writes = [
            r
            for r in w.handler.seen
            if r.method not in {"GET", "HEAD"} and r.path.startswith("/api/v1/nodes/")
        ]
        return Measured(count, requests, len(writes) / count, seconds, await _idle(w), spent)


async def _all_initialised(w: World) -> float:
    while True:
        rows = w.runtime.manager.caches.of(Node).list()
        if rows and not any(plan.is_new(node) for node in rows):
            return w.stage.clock.monotonic()
        await asyncio.sleep(0.1)


async def _idle(w: World) -> float:
    """Requests to Proxmox in a minute with nothing to do."""
    await asyncio.sleep(600)
    before = len(w.stage.transport.sent)
    await asyncio.sleep(IDLE_SECONDS)
    return (len(w.stage.transport.sent) - before) / (IDLE_SECONDS / 60)


def tell(found: Measured) -> bool:
    """Print the figures; whether they are within the limits."""
    rows = [
        ("requests per node", found.per_node, f"limit {MOST_REQUESTS}, the polled list apart"),
        ("API writes per node", found.writes, f"limit {MOST_WRITES:.0f}"),
        ("seconds to all initialised", found.seconds, "virtual"),
        ("requests a minute idle", found.idle, "all nodes together"),
        ("CPU ms per node", found.cpu / found.count * 1000, "controllers, API, simulator"),
    ]
    print(f"\n{found.count} nodes")
    for what, value, beside in rows:
        print(f"  {what:28} {value:8.2f}   ({beside})")
    for path, n in found.requests.most_common(6):
        print(f"    {n / found.count:6.2f}  {path}")
    few = found.count < 100  # what is asked once for a region weighs more on few nodes
    return (few or found.per_node <= MOST_REQUESTS) and found.writes <= MOST_WRITES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few", type=int, default=10)
    parser.add_argument("--many", type=int, default=1000)
    given = parser.parse_args()
    few, many = run_virtual(measure(given.few)), run_virtual(measure(given.many))
    good = tell(few) and tell(many)
    constant = abs(few.idle - many.idle) <= 0.1
    print(f"\nidle load constant: {'yes' if constant else 'NO'}")
    return 0 if good and constant else 1


if __name__ == "__main__":
    sys.exit(main())
