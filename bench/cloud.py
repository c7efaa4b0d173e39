"""
Measure the requests that nodes cost Proxmox and the Kubernetes API, at initialization and idle.

Runs the cloud controllers, the embedded API server and the simulator in one process on virtual
time, so that requests are counted exactly. The idle load must be the same with few and many nodes.

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
from moxwell.testing.cloud import CloudEnvironment, world
from moxwell.testing.loop import run_virtual

MAX_REQUESTS, MAX_WRITES = 1.5, 2.0
IDLE_SECONDS = 1800.0
FIRST = 1000


@dataclass(frozen=True)
class Measured:
    """The cost of a number of nodes."""

    count: int
    requests: Counter[str]
    writes: float
    seconds: float
    idle: float
    cpu: float

    @property
    def per_node(self) -> float:
        """Requests to Proxmox per node, without the list that is polled anyway."""
        rest = {k: n for k, n in self.requests.items() if k != "/cluster/resources"}
        return sum(rest.values()) / self.count


def kind_of(path: str) -> str:
    """The path of a request without numbers and host names."""
    parts = path.strip("/").split("/")
    if parts[0] == "nodes":
        parts[1] = "N"
    return "/" + "/".join("ID" if p.isdigit() else p for p in parts)


def populate(w: CloudEnvironment, count: int) -> None:
    """Create guests without API requests."""
    for n in range(count):
        vmid = FIRST + n
        w.add_guest(vmid, f"n{n}", uuid_of(n))


def uuid_of(n: int) -> str:
    return f"10000000-0000-4000-8000-{n:012d}"


async def measure(count: int) -> Measured:
    """Register all nodes at once, then measure them idle."""
    async with world() as w:
        populate(w, count)
        await asyncio.sleep(60)
        w.stage.transport.sent.clear()
        w.handler.seen.clear()
        began, cpu = w.stage.clock.monotonic(), time.process_time()
        for n in range(count):
            await w.join(f"n{n}", uuid=uuid_of(n))
        seconds = await _all_initialized(w) - began
        spent = time.process_time() - cpu
        requests = Counter(kind_of(path) for _, path in w.stage.transport.sent)
        writes = [
            r
            for r in w.handler.seen
            if r.method not in {"GET", "HEAD"} and r.path.startswith("/api/v1/nodes/")
        ]
        return Measured(count, requests, len(writes) / count, seconds, await _idle(w), spent)


async def _all_initialized(w: CloudEnvironment) -> float:
    while True:
        rows = w.runtime.manager.caches.of(Node).list()
        if rows and not any(plan.is_new(node) for node in rows):
            return w.stage.clock.monotonic()
        await asyncio.sleep(0.1)


async def _idle(w: CloudEnvironment) -> float:
    """Requests to Proxmox per minute without changes."""
    await asyncio.sleep(600)
    before = len(w.stage.transport.sent)
    await asyncio.sleep(IDLE_SECONDS)
    return (len(w.stage.transport.sent) - before) / (IDLE_SECONDS / 60)


def report(found: Measured) -> bool:
    """Print the figures; returns whether they are within the limits."""
    rows = [
        ("requests per node", found.per_node, f"limit {MAX_REQUESTS}, without the polled list"),
        ("API writes per node", found.writes, f"limit {MAX_WRITES:.0f}"),
        ("seconds until all initialized", found.seconds, "virtual"),
        ("requests a minute idle", found.idle, "all nodes together"),
        ("CPU ms per node", found.cpu / found.count * 1000, "controllers, API, simulator"),
    ]
    print(f"\n{found.count} nodes")
    for what, value, note in rows:
        print(f"  {what:28} {value:8.2f}   ({note})")
    for path, n in found.requests.most_common(6):
        print(f"    {n / found.count:6.2f}  {path}")
    few = found.count < 100  # requests per region weigh more with few nodes
    return (few or found.per_node <= MAX_REQUESTS) and found.writes <= MAX_WRITES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few", type=int, default=10)
    parser.add_argument("--many", type=int, default=1000)
    given = parser.parse_args()
    few, many = run_virtual(measure(given.few)), run_virtual(measure(given.many))
    good = report(few) and report(many)
    constant = abs(few.idle - many.idle) <= 0.1
    print(f"\nidle load constant: {'yes' if constant else 'NO'}")
    return 0 if good and constant else 1


if __name__ == "__main__":
    sys.exit(main())
