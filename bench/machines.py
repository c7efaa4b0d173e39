"""
Benchmark of machines: Proxmox requests, CPU time and duration.

Runs controllers, embedded API server and simulator in one process on virtual time: requests and
virtual seconds are exact, CPU time is measured. The lower bound of the duration is the slowest
chain of clone, resize, start and boot in the simulator.

    python bench/machines.py [--machines 100] [--idle 1000]
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine
from moxwell.testing.two_regions import WORLD, TwoRegions, is_true, ready, running

MOST_REQUESTS, MOST_WRITES, MOST_RATIO = 18.0, 8.0, 1.25
IDLE_SECONDS = 600.0
DISK = {"bootVolume": {"disk": "scsi0", "sizeGb": 20}}


@dataclass(frozen=True)
class Made:
    """The cost of creating machines."""

    count: int
    requests: Counter[tuple[str, str]]
    seconds: float
    bound: float
    cpu: float

    @property
    def per_machine(self) -> float:
        return sum(self.requests.values()) / self.count

    @property
    def writes(self) -> float:
        return sum(n for (m, _), n in self.requests.items() if m != "GET") / self.count

    @property
    def ratio(self) -> float:
        return self.seconds / self.bound


def kind_of(method: str, path: str) -> tuple[str, str]:
    """The kind of a request: its path without IDs, host names and volumes."""
    parts = [p for p in path.split("/") if p]
    if parts[:1] == ["nodes"]:
        parts[1] = "N"
    shown = ["ID" if p.isdigit() or ":" in p else p for p in parts]
    return method, "/" + "/".join(shown[:6])


async def make(env: TwoRegions, count: int, full: bool) -> Made:
    """Create machines and wait until each is ready and its bootstrap ISO is deleted."""
    await apply_cluster(
        env,
        ipv4Config={"addresses": ["10.64.0.0/16"], "prefix": 10, "gateway": "10.127.0.1"},
        controlPlaneEndpoint={"host": "10.0.0.4", "port": 6443},
    )
    await asyncio.sleep(10)
    env.sent().clear()
    began, cpu = env.clock.monotonic(), time.process_time()
    for n in range(count):
        await apply_machine(env, f"m{n}", templateID=9000, full=full, numCores=1, disks=DISK)
    await _until_all(env, lambda m: is_true(m, "Ready"))
    seconds = env.clock.monotonic() - began
    await _until_all(env, ready)
    requests = Counter(kind_of(*sent) for sent in env.sent())
    return Made(count, requests, seconds, bound(env), time.process_time() - cpu)


async def _until_all(env: TwoRegions, what: Callable[[ProxmoxMachine], bool]) -> None:
    left = True
    while left:
        await asyncio.sleep(0.5)
        left = not all(what(m) for m in (await env.kube.list(ProxmoxMachine)).items)


def bound(env: TwoRegions) -> float:
    """The lower bound: the slowest chain of tasks in the simulator."""
    pace = env.region("north").pace
    slowest = {"qmclone": 0.0, "resize": 0.0, "qmstart": 0.0}
    for task in env.region("north").tasks.values():
        if task.type in slowest and task.endtime:
            took = task.endtime - task.starttime
            slowest[task.type] = max(slowest[task.type], took)
    return sum(slowest.values()) + pace.boot + env.guest_os.join_seconds


async def idle(env: TwoRegions) -> float:
    """Requests per minute of idle machines."""
    await asyncio.sleep(120)
    before = len(env.sent())
    await asyncio.sleep(IDLE_SECONDS)
    return (len(env.sent()) - before) / (IDLE_SECONDS / 60)


async def story(count: int, full: bool) -> tuple[Made, float]:
    """Create machines, then measure them while idle."""
    world = WORLD.replace("cpus: 32, memory: 256G", "cpus: 512, memory: 4096G")
    async with running("north", world=world) as (env, _):
        made = await make(env, count, full)
        return made, await idle(env)


def tell(name: str, made: Made, calm: float) -> bool:
    """Print the figures; returns whether they are within the limits."""
    cpu = made.cpu / made.count * 1000
    rows = [
        ("requests per machine", made.per_machine, f"limit {MOST_REQUESTS:.0f}, CAPMOX's way 66"),
        ("writes per machine", made.writes, f"limit {MOST_WRITES:.0f}, CAPMOX's way 12"),
        ("seconds to all Ready", made.seconds, f"lower bound {made.bound:.1f}"),
        ("as a multiple of it", made.ratio, f"limit {MOST_RATIO}"),
        ("CPU ms per machine", cpu, "controllers, API and simulator together"),
        ("requests a minute idle", calm, "all machines together"),
    ]
    print(f"\n{made.count} machines, {name}")
    for what, value, beside in rows:
        print(f"  {what:24} {value:8.2f}   ({beside})")
    for (method, path), n in made.requests.most_common(14):
        print(f"    {n / made.count:6.2f}  {method:6} {path}")
    good = made.per_machine <= MOST_REQUESTS and made.writes <= MOST_WRITES
    return good and made.ratio <= MOST_RATIO


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=100)
    parser.add_argument("--idle", type=int, default=0, help="also make so many and watch them idle")
    given = parser.parse_args()
    good = tell("linked clones", *run_virtual(story(given.machines, False)))
    good &= tell("full clones", *run_virtual(story(given.machines, True)))
    if given.idle:
        made, calm = run_virtual(story(given.idle, False))
        tell("linked clones, then idle", made, calm)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
