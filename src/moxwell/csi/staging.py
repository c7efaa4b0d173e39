"""
Stages and unstages volumes on a node: unlock, format, check, mount, grow.

A disk is formatted only if it is empty. Whatever is mounted at the staging path is compared with
the device of the volume on every call; another device raises DeviceMismatch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from moxwell.clock import Clock
from moxwell.csi.devices import BlockDevice, DeviceSource, choose_device, wait_device
from moxwell.csi.errors import DeviceMismatch
from moxwell.csi.ids import DiskIdentity, VolumeId, find_volume, get_volume
from moxwell.csi.mounter import MountEntry, Mounter
from moxwell.csi.parameters import VolumeParameters
from moxwell.errors import Invalid

LUKS = "crypto_LUKS"
KEY = "encryption-passphrase"


@dataclass(frozen=True)
class StageRequest:
    """The parameters of NodeStageVolume."""

    volume: str
    path: str
    kind: str = "ext4"
    flags: Sequence[str] = ()
    block: bool = False
    read_only: bool = False
    context: Mapping[str, str] = field(default_factory=dict)
    publish: Mapping[str, str] = field(default_factory=dict)
    key: bytes = field(default=b"", repr=False)


def luks_name(volume: VolumeId) -> str:
    return f"csi-{volume.identity.wwn[2:]}"


class Stager:
    """Stages volumes with a mounter and the block devices of this node."""

    def __init__(self, disks: DeviceSource, mounter: Mounter, clock: Clock) -> None:
        self.disks, self.mounter, self._clock = disks, mounter, clock

    async def device(self, volume: VolumeId, publish: Mapping[str, str]) -> BlockDevice:
        """Wait for the block device of the volume."""
        expected = publish.get("wwn") or _wwn_of(publish.get("DevicePath", ""))
        return await wait_device(self.disks, self._clock, volume.identity, expected)

    async def mounted(self, path: str) -> MountEntry | None:
        """The mount at a path; the last one counts, as in the kernel."""
        found = [m for m in await self.mounter.table() if m.target == path]
        return found[-1] if found else None

    async def verify(self, path: str, device: str) -> bool:
        """Return whether the device is mounted at the path; raises if another one is."""
        current = await self.mounted(path)
        if current is None:
            return False
        own = await self.mounter.number(device)
        if current.device != own:
            raise DeviceMismatch(
                f"{path} has {current.source or current.device} mounted, not {device}"
            )
        return True

    async def stage(self, staging: StageRequest) -> None:
        volume = get_volume(staging.volume)
        raw = await self.device(volume, staging.publish)
        if staging.block:
            return
        path = await self._unlock(volume, raw, staging)
        if await self.verify(staging.path, path):
            await self._grow_if_smaller(path, staging)
            return
        empty = bool(staging.key) and await self.mounter.is_empty_luks(raw.path)
        kind = await self._format_if_empty(path, staging, empty=empty)
        if empty:
            await self.mounter.fill_luks(raw.path)
        _make_directory(staging.path)
        await self.mounter.mount(path, staging.path, kind, mount_options(kind, staging))
        await self._grow_if_smaller(path, staging)

    async def _unlock(self, volume: VolumeId, raw: BlockDevice, staging: StageRequest) -> str:
        """The device with the file system: the disk, or its unlocked LUKS mapping."""
        content = await self.mounter.probe(raw.path)
        if not staging.key:
            if content == LUKS:
                raise Invalid(f"{staging.volume} is encrypted and the secret has no {KEY}")
            return raw.path
        if content not in ("", LUKS):
            raise DeviceMismatch(f"{staging.volume} contains {content} and is not encrypted")
        name = luks_name(volume)
        return await self.mounter.open_luks(raw.path, name, staging.key, fresh=not content)

    async def _format_if_empty(self, device: str, staging: StageRequest, *, empty: bool) -> str:
        content = "" if empty else await self.mounter.probe(device)
        if not content:
            if staging.read_only:
                raise Invalid(f"{staging.volume} is empty and read-only: it cannot be formatted")
            await self.mounter.make(device, staging.kind, mkfs_options(staging))
            return staging.kind
        if content != staging.kind:
            raise DeviceMismatch(f"{staging.volume} contains {content}, not {staging.kind}")
        if not staging.read_only:
            await self.mounter.check(device, content)
        return content

    async def _grow_if_smaller(self, device: str, staging: StageRequest) -> None:
        """Grow the file system of a disk that was expanded while detached."""
        if staging.read_only:
            return
        if staging.key:
            await self.mounter.grow_luks(luks_name(get_volume(staging.volume)), staging.key)
        usage = await self.mounter.usage(staging.path)
        size = await self.mounter.size(device)
        if size - usage.total > max(size // 10, 64 << 20):
            await self.mounter.grow(device, staging.path, staging.kind)

    async def unstage(self, volume_id: str, path: str, *, trim: bool = True) -> None:
        """Unmount and lock the volume; raises if another device is mounted there."""
        current = await self.mounted(path)
        volume = find_volume(volume_id)
        if current is not None:
            if volume is not None:
                await self._refuse_other_device(volume.identity, current, path, luks_name(volume))
            if trim and not current.read_only:
                await self.mounter.trim(path)
            await self.mounter.unmount(path)
        if volume is not None:
            await self.mounter.close_luks(luks_name(volume))

    async def _refuse_other_device(
        self, identity: DiskIdentity, current: MountEntry, path: str, luks: str
    ) -> None:
        if current.source == f"/dev/mapper/{luks}":
            return
        device = choose_device(await self.disks.list(), identity)
        if device is not None and await self.mounter.number(device.path) != current.device:
            raise DeviceMismatch(f"{path} has {current.source} mounted, which is not the volume")


def _wwn_of(path: str) -> str:
    return path.rpartition("wwn-")[2] if "wwn-" in path else ""


def _make_directory(path: str) -> None:
    Path(path).mkdir(parents=True, exist_ok=True)


def mkfs_options(staging: StageRequest) -> tuple[str, ...]:
    params = VolumeParameters.of_context(staging.context, {})
    block, inode = params.number("blockSize"), params.number("inodeSize")
    if staging.kind == "xfs":
        return (
            *(("-b", f"size={block}") if block else ()),
            *(("-i", f"size={inode}") if inode else ()),
        )
    return (*(("-b", str(block)) if block else ()), *(("-I", str(inode)) if inode else ()))


def mount_options(kind: str, staging: StageRequest) -> tuple[str, ...]:
    """The mount options of the StorageClass plus those that the file system needs."""
    options = list(staging.flags)
    if kind == "xfs":
        options.append("nouuid")  # a clone has the UUID of its source
    if VolumeParameters.of_context(staging.context, {}).flag("ssd"):
        options.append("noatime")
    if staging.read_only:
        options.append("ro")
    return tuple(dict.fromkeys(options))
