"""
A Node service with real disks: files on loop devices with the WWN and serial of volumes.

``Loops`` are the block devices of a guest; ``NodeEnvironment`` calls the Node service as kubelet
does. Loop devices survive the process, so every environment must be closed.
"""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from envtest import disks as programs
from envtest.plugin import skip_here
from moxwell.clock import SystemClock
from moxwell.csi.devices import BlockDevice
from moxwell.csi.ids import VolumeId
from moxwell.csi.mounter import SystemMounter
from moxwell.csi.node import NodeService
from moxwell.csi.staging import KEY, Stager
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.testing.csi import can_mount

MODE = csi.VolumeCapability.AccessMode
SIZE = 512 << 20


def shell(*command: str, good: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in good, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


class Loops:
    """The block devices of a guest: one file on a loop device per volume."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.devices: dict[str, str] = {}
        self.serials: dict[str, str] = {}

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.img"

    def plug(self, name: str, size: int = SIZE) -> str:
        if not self.file(name).exists():
            with self.file(name).open("wb") as disk:
                disk.truncate(size)
        made = shell("losetup", "-f", "--show", str(self.file(name)))
        self.devices[name] = made.strip()
        return self.devices[name]

    def unplug(self, name: str) -> None:
        shell("losetup", "-d", self.devices.pop(name))

    def grow(self, name: str, size: int) -> None:
        with self.file(name).open("ab") as disk:
            disk.truncate(size)
        if name in self.devices:
            shell("losetup", "-c", self.devices[name])

    async def list(self) -> tuple[BlockDevice, ...]:
        return tuple(
            BlockDevice(path, (i := identity(name)).wwn, self.serials.get(name, i.serial))
            for name, path in self.devices.items()
        )

    async def rescan(self) -> None:
        return None

    def close(self) -> None:
        for path in self.devices.values():
            subprocess.run(["losetup", "-d", path], check=False, capture_output=True)


def volume(name: str) -> str:
    return f"r1/h1/lvm/vm-9999-pvc-{name}"


def identity(name: str):  # type: ignore[no-untyped-def]
    return VolumeId(*volume(name).split("/")).identity


class NodeEnvironment:
    """A node with its staging and target paths."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.loops = folder, Loops(folder)
        self.stager = Stager(self.loops, SystemMounter(), SystemClock())
        self.node = NodeService(self.stager, node_id="n", region="r1", zone="h1")

    def at(self, name: str) -> Path:
        return self.folder / "staging" / name

    def pod(self, name: str) -> Path:
        return self.folder / "pods" / name

    async def stage(
        self, name: str, kind: str = "ext4", *, block: bool = False, **more: str
    ) -> None:
        key, context = more.pop("key", ""), more
        await self.node.node_stage_volume(
            csi.NodeStageVolumeRequest(
                volume_id=volume(name),
                staging_target_path=str(self.at(name)),
                volume_capability=capability(kind, block=block),
                volume_context=context,
                secrets={KEY: key} if key else {},
            )
        )

    async def unstage(self, name: str) -> None:
        await self.node.node_unstage_volume(
            csi.NodeUnstageVolumeRequest(
                volume_id=volume(name), staging_target_path=str(self.at(name))
            )
        )

    async def publish(
        self, name: str, kind: str = "ext4", *, only: bool = False, block: bool = False,
        mode: "MODE.Mode" = MODE.SINGLE_NODE_WRITER, to: str = "",
    ) -> None:  # fmt: skip
        await self.node.node_publish_volume(
            csi.NodePublishVolumeRequest(
                volume_id=volume(name),
                staging_target_path=str(self.at(name)),
                target_path=str(self.pod(to or name)),
                volume_capability=capability(kind, block=block, mode=mode),
                readonly=only,
            )
        )

    async def unpublish(self, name: str, to: str = "") -> None:
        await self.node.node_unpublish_volume(
            csi.NodeUnpublishVolumeRequest(
                volume_id=volume(name), target_path=str(self.pod(to or name))
            )
        )

    async def expand(self, name: str, kind: str) -> None:
        await self.node.node_expand_volume(
            csi.NodeExpandVolumeRequest(
                volume_id=volume(name),
                volume_path=str(self.at(name)),
                volume_capability=capability(kind),
            )
        )

    async def bytes_of(self, name: str) -> int:
        answer = await self.node.node_get_volume_stats(
            csi.NodeGetVolumeStatsRequest(volume_id=volume(name), volume_path=str(self.at(name)))
        )
        return int(answer.usage[0].total)

    def close(self) -> None:
        rows = Path("/proc/self/mountinfo").read_text().splitlines()
        ours = [row.split()[4] for row in rows if str(self.folder) in row.split()[4]]
        for target in reversed(ours):
            subprocess.run(["umount", target], check=False, capture_output=True)
        self.loops.close()


def capability(
    kind: str, *, block: bool = False, mode: "MODE.Mode" = MODE.SINGLE_NODE_WRITER
) -> csi.VolumeCapability:
    made = csi.VolumeCapability(access_mode=MODE(mode=mode))
    if block:
        made.block.SetInParent()
    else:
        made.mount.fs_type = kind
    return made


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await story()

    asyncio.run(whole())


def put(file: Path, text: str) -> None:
    file.write_text(text)


def get(file: Path) -> str:
    return file.read_text()


def exists(file: Path) -> bool:
    return file.exists()


def blocks(file: Path) -> int:
    return file.stat().st_blocks * 512


def head(file: Path) -> bytes:
    with file.open("rb") as disk:
        return disk.read(32 << 20)


def staged(folder: Path) -> Iterator[NodeEnvironment]:
    """An environment that is closed at the end; reports NOT RUN where this machine cannot mount."""
    if programs.missing():
        skip_here(f"no {', '.join(programs.missing())}: run `make envtest` where apt may install")
    if not can_mount(folder):
        skip_here("this machine may not mount loop devices")
    made = NodeEnvironment(folder)
    try:
        yield made
    finally:
        made.close()
