"""The Node service handles one call per volume at a time, and volumes in parallel."""

import asyncio
import gc

from moxwell.csi.devices import BlockDevice
from moxwell.csi.node import NodeService
from moxwell.csi.staging import Stager, StageRequest
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.testing.csi_files import FileMounter
from moxwell.testing.loop import LoopClock, run_virtual

WRITER = csi.VolumeCapability.AccessMode.SINGLE_NODE_WRITER
CAPABILITY = csi.VolumeCapability(
    mount=csi.VolumeCapability.MountVolume(fs_type="ext4"),
    access_mode=csi.VolumeCapability.AccessMode(mode=WRITER),
)


class NoDisks:
    async def list(self) -> tuple[BlockDevice, ...]:
        return ()

    async def rescan(self) -> None:
        return None


class Slow(Stager):
    """A mounter whose calls take a second; records the concurrency per volume."""

    def __init__(self) -> None:
        super().__init__(NoDisks(), FileMounter(), LoopClock())
        self.now: dict[str, int] = {}
        self.max_volumes: dict[str, int] = {}

    async def stage(self, staging: StageRequest) -> None:
        await self._work(staging.volume)

    async def unstage(self, volume_id: str, path: str, *, trim: bool = True) -> None:
        await self._work(volume_id)

    async def _work(self, volume: str) -> None:
        self.now[volume] = self.now.get(volume, 0) + 1
        self.max_volumes[volume] = max(self.max_volumes.get(volume, 0), self.now[volume])
        await asyncio.sleep(1)
        self.now[volume] -= 1


def stage(node: NodeService, volume: str) -> asyncio.Task[csi.NodeStageVolumeResponse]:
    ask = csi.NodeStageVolumeRequest(
        volume_id=volume, staging_target_path="/at", volume_capability=CAPABILITY
    )
    return asyncio.create_task(node.node_stage_volume(ask))


def unstage(node: NodeService, volume: str) -> asyncio.Task[csi.NodeUnstageVolumeResponse]:
    ask = csi.NodeUnstageVolumeRequest(volume_id=volume, staging_target_path="/at")
    return asyncio.create_task(node.node_unstage_volume(ask))


def test_calls_for_one_volume_run_one_at_a_time() -> None:
    async def story() -> dict[str, int]:
        stager = Slow()
        node = NodeService(stager, node_id="n", region="r", zone="z")
        leaving, waiting = unstage(node, "one"), stage(node, "one")
        await leaving
        await asyncio.gather(waiting, stage(node, "one"), unstage(node, "one"))
        return stager.max_volumes

    assert run_virtual(story()) == {"one": 1}


def test_volumes_run_in_parallel_and_locks_are_released() -> None:
    async def story() -> tuple[float, int]:
        node = NodeService(Slow(), node_id="n", region="r", zone="z")
        before = asyncio.get_running_loop().time()
        await asyncio.gather(*(stage(node, f"v{n}") for n in range(5)))
        gc.collect()
        return asyncio.get_running_loop().time() - before, len(node.volumes_in_use)

    assert run_virtual(story()) == (1, 0)
