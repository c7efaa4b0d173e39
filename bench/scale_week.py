"""The size of a database after the heartbeats of a week, written on virtual time."""

import asyncio
import tempfile
import time
from pathlib import Path

from moxwell.api.kinds import Resource
from moxwell.api.meta import micro_time
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.kube.client import Kube
from moxwell.testing.loop import LoopClock, run_virtual

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
RENEW_SECONDS, DAY = 10.0, 86_400.0


async def _renew(kube: Kube, clock: LoopClock, name: str, until: float) -> None:
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    meta = {"name": name, "namespace": "kube-node-lease"}
    await kube.create(body | {"metadata": meta, "spec": {"holderIdentity": name}}, LEASES)
    while clock.monotonic() < until:
        await asyncio.sleep(RENEW_SECONDS)
        now = micro_time(clock.now())
        await kube.merge(LEASES, name, {"spec": {"renewTime": now}}, "kube-node-lease")


def _megabytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e6


async def _week(folder: Path, nodes: int) -> list[float]:
    clock = LoopClock()
    store = EmbeddedApiServer(path=folder / "store.db", clock=clock)
    await store.start()
    kube, sizes, began = Kube(store), [], clock.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(nodes):
            group.create_task(_renew(kube, clock, f"node-{number}", began + 7 * DAY))
        for _ in range(7):
            await asyncio.sleep(DAY)
            sizes.append(_megabytes(folder))
    await store.stop()
    return [*sizes, _megabytes(folder)]


def database_after_week(nodes: int) -> None:
    """Print the size of the database after each day."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        sizes = run_virtual(_week(Path(folder), nodes))
    writes = int(nodes * 7 * DAY / RENEW_SECONDS)
    shown = ", ".join(f"{size:.1f}" for size in sizes)
    print(f"\n{nodes} nodes, a week of heartbeats ({writes} writes): MB after each day {shown}")
    print(f"  CPU ms per heartbeat {(time.process_time() - began) / writes * 1000:.3f}")
