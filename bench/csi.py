"""
What a volume costs Proxmox: requests per create, attach, expand, detach, snapshot and restore.

Everything runs on virtual time against the simulator, with a token that has the documented role.
What is counted is all that goes over the wire but the one list per region that is polled in any
case; asking whether tasks have ended is counted. proxmox-csi-plugin, by its source, sends
at least 9 per attach. Run: ``python bench/csi.py``.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Iterable
from pathlib import Path

from moxwell.csi.wire import csi_pb2 as csi
from moxwell.lab.proxmox.state import SimVolume
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


async def counted(stage: CsiEnvironment, work: Awaitable[object]) -> int:
    await asyncio.sleep(10)  # nothing that was looked at lately counts
    before = len(stage.sent())
    await work
    return sum(1 for _, path in stage.sent()[before:] if path not in POLLED)


def crowd(stage: CsiEnvironment, count: int) -> None:
    """So many volumes of ours lie there already."""
    shelf = stage.world().storages["ceph"].volumes_on("r1-h0")
    sample = next(iter(shelf.values()))
    for n in range(count):
        name = f"vm-9999-pvc-old-{n}"
        shelf[name] = SimVolume(name, "raw", "images", sample.size, vmid=9999)


async def measure(folder: Path, existing: int) -> dict[str, float]:
    stage = CsiEnvironment(folder, guests=20)
    crowd(stage, existing)
    async with stage.running(regions=("r1",)):
        control = stage.controller
        warm = await calls.create(control, "pvc-warm")
        for _ in range(2):  # it looks around once, and again when all guests' states are known
            await calls.attach(control, warm)
            await asyncio.sleep(60)
        made: list[csi.Volume] = []

        async def create(n: int) -> None:
            made.append(await calls.create(control, f"pvc-{n}"))

        found = {"create": await counted(stage, _all(create(n) for n in range(200))) / 200}
        volumes = sorted(made, key=lambda v: str(v.volume_id))
        alone = calls.attach(control, volumes[0], 120)
        found["attach alone"] = await counted(stage, alone)
        together = [calls.attach(control, v, 101 + n % 19) for n, v in enumerate(volumes[1:])]
        found["attach together"] = await counted(stage, _all(together)) / 199
        found["expand"] = await counted(stage, calls.expand(control, volumes[0], 2))
        away = [calls.detach(control, v, 101 + n % 19) for n, v in enumerate(volumes[1:])]
        found["detach together"] = await counted(stage, _all(away)) / 199
        found |= await _copies(stage, volumes[1])
    await stage.close()
    return found


async def _copies(stage: CsiEnvironment, volume: csi.Volume) -> dict[str, float]:
    """The second snapshot of a volume, and a restore of it; the first makes the carrier."""
    control, found = stage.controller, {}
    await calls.snapshot(control, "snap-first", volume)
    taken: list[csi.Snapshot] = []

    async def snap() -> None:
        taken.append(await calls.snapshot(control, "snap-second", volume))

    found["snapshot"] = float(await counted(stage, snap()))
    source = calls.of_snapshot(taken[0])
    found["restore"] = float(await counted(stage, calls.create(control, "pvc-r", source=source)))
    found["unsnapshot"] = float(await counted(stage, calls.unsnapshot(control, taken[0])))
    return found


async def _all(work: Iterable[Awaitable[object]]) -> None:
    await asyncio.gather(*work)


def main() -> int:
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
