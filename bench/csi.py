"""
Counts Proxmox requests per create, attach, expand, detach, snapshot and restore.

Runs in virtual time against the simulator with a token that has the documented role. All requests
count, task polling included, except the inventory poll of each region. proxmox-csi-plugin sends at
least 9 per attach, by its source. Run: ``python bench/csi.py``.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Iterable
from pathlib import Path

from moxwell.csi.wire import csi_pb2 as csi
from moxwell.lab.proxmox.state import SimVolume
from moxwell.runtime import log
from moxwell.testing import csi_calls as calls
from moxwell.testing.csi import CsiEnvironment
from moxwell.testing.loop import run_virtual

LIMITS = {
    "create": 1.0,
    "attach alone": 4.0,
    "attach together": 2.0,
    "expand": 4.0,
    "detach together": 2.0,
    "snapshot": 8.0,
    "restore": 10.0,
    "unsnapshot": 8.0,
}
POLLED = ("/cluster/resources",)


async def counted(env: CsiEnvironment, work: Awaitable[object]) -> int:
    await asyncio.sleep(10)  # so that no recent read is reused
    before = len(env.sent())
    await work
    return sum(1 for _, path in env.sent()[before:] if path not in POLLED)


def add_existing_volumes(env: CsiEnvironment, count: int) -> None:
    """Add existing volumes of the driver."""
    volumes = env.world().storages["ceph"].volumes_on("r1-h0")
    sample = next(iter(volumes.values()))
    for n in range(count):
        name = f"vm-9999-pvc-old-{n}"
        volumes[name] = SimVolume(name, "raw", "images", sample.size, vmid=9999)


async def measure(folder: Path, existing: int) -> dict[str, float]:
    env = CsiEnvironment(folder, guests=20)
    add_existing_volumes(env, existing)
    async with env.running(regions=("r1",)):
        control = env.controller
        warm = await calls.create(control, "pvc-warm")
        for _ in range(2):  # the second reads the guests whose state changed
            await calls.attach(control, warm)
            await asyncio.sleep(60)
        made: list[csi.Volume] = []

        async def create(n: int) -> None:
            made.append(await calls.create(control, f"pvc-{n}"))

        found = {"create": await counted(env, _all(create(n) for n in range(200))) / 200}
        volumes = sorted(made, key=lambda v: str(v.volume_id))
        alone = calls.attach(control, volumes[0], 120)
        found["attach alone"] = await counted(env, alone)
        together = [calls.attach(control, v, 101 + n % 19) for n, v in enumerate(volumes[1:])]
        found["attach together"] = await counted(env, _all(together)) / 199
        found["expand"] = await counted(env, calls.expand(control, volumes[0], 2))
        away = [calls.detach(control, v, 101 + n % 19) for n, v in enumerate(volumes[1:])]
        found["detach together"] = await counted(env, _all(away)) / 199
        found |= await _copies(env, volumes[1])
    await env.close()
    return found


async def _copies(env: CsiEnvironment, volume: csi.Volume) -> dict[str, float]:
    """Measure the second snapshot of a volume and its restore; the helper VM exists then."""
    control, found = env.controller, {}
    await calls.snapshot(control, "snap-first", volume)
    taken: list[csi.Snapshot] = []

    async def snap() -> None:
        taken.append(await calls.snapshot(control, "snap-second", volume))

    found["snapshot"] = float(await counted(env, snap()))
    source = calls.of_snapshot(taken[0])
    found["restore"] = float(await counted(env, calls.create(control, "pvc-r", source=source)))
    found["unsnapshot"] = float(await counted(env, calls.unsnapshot(control, taken[0])))
    return found


async def _all(work: Iterable[Awaitable[object]]) -> None:
    await asyncio.gather(*work)


def main() -> int:
    log.configure(form="console", level="warning")
    results = []
    for existing in (0, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            results.append(run_virtual(measure(Path(folder), existing)))
    bad = 0
    print(f"{'requests per':18}{'empty':>8}{'10,000':>8}{'limit':>8}")
    for name, limit in LIMITS.items():
        small, large = results[0][name], results[1][name]
        over = small > limit or large > small * 1.01
        bad += over
        print(f"{name:18}{small:8.2f}{large:8.2f}{limit:8.1f}{'  OVER' if over else ''}")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
