"""
From a device to a folder: staging a volume on a node, and back.

In: a volume, its device, a path. Out: the file system mounted there, made if the disk was empty,
checked, and as large as the disk. Whatever is found mounted at the path is compared with the
volume's own device, every time; a mount of anything else is refused, never accepted as done. The
surprise: a volume that is not staged is left alone silently, but one that is staged twice is not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from moxwell.clock import Clock
from moxwell.csi.devices import Device, Disks, choose_device, wait_device
from moxwell.csi.errors import WrongDisk
from moxwell.csi.ids import Identity, VolumeId, find_volume, get_volume
from moxwell.csi.mounter import Mounted, Mounter
from moxwell.csi.parameters import Params
from moxwell.errors import Invalid

LUKS = "crypto_LUKS"
KEY = "encryption-passphrase"


@dataclass(frozen=True)
class Staging:
    """A volume that is to be staged."""

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
    """Stages volumes with a mounter and the disks of this guest."""

    def __init__(self, disks: Disks, mounter: Mounter, clock: Clock) -> None:
        self.disks, self.mounter, self._clock = disks, mounter, clock

    async def device(self, volume: VolumeId, publish: Mapping[str, str]) -> Device:
        """The volume's own disk, by its identity."""
        expected = publish.get("wwn") or _wwn_of(publish.get("DevicePath", ""))
        return await wait_device(self.disks, self._clock, volume.identity, expected)

    async def mounted(self, path: str) -> Mounted | None:
        """What is mounted at a path; the last one wins, as in the kernel."""
        found = [m for m in await self.mounter.table() if m.target == path]
        return found[-1] if found else None

    async def verify(self, path: str, device: str) -> bool:
        """Is this device mounted there? False if nothing is; raises if something else is."""
        there = await self.mounted(path)
        if there is None:
            return False
        own = await self.mounter.number(device)
        if there.device != own:
            raise WrongDisk(f"{path} holds {there.source or there.device}, not {device}")
        return True

    async def stage(self, staging: Staging) -> None:
        volume = get_volume(staging.volume)
        raw = await self.device(volume, staging.publish)
        if staging.block:
            return
        path = await self._unlocked(volume, raw, staging)
        if await self.verify(staging.path, path):
            await self._grow_if_smaller(path, staging)
            return
        empty = bool(staging.key) and await self.mounter.is_empty_luks(raw.path)
        kind = await self._formatted(path, staging, empty=empty)
        if empty:
            await self.mounter.fill_luks(raw.path)
        _make_folder(staging.path)
        await self.mounter.mount(path, staging.path, kind, mount_options(kind, staging))
        await self._grow_if_smaller(path, staging)

    async def _unlocked(self, volume: VolumeId, raw: Device, staging: Staging) -> str:
        """The device with the file system: the disk itself, or what its key opens."""
        content = await self.mounter.probe(raw.path)
        if not staging.key:
            if content == LUKS:
                raise Invalid(f"{staging.volume} is encrypted and no key was given ({KEY})")
            return raw.path
        if content not in ("", LUKS):
            raise WrongDisk(f"{staging.volume} has {content} on it and is not encrypted")
        name = luks_name(volume)
        return await self.mounter.open_luks(raw.path, name, staging.key, fresh=not content)

    async def _formatted(self, device: str, staging: Staging, *, empty: bool) -> str:
        content = "" if empty else await self.mounter.probe(device)
        if not content:
            if staging.read_only:
                raise Invalid(f"{staging.volume} is empty and read-only: nothing can be mounted")
            await self.mounter.make(device, staging.kind, mkfs_options(staging))
            return staging.kind
        if content != staging.kind:
            raise WrongDisk(f"{staging.volume} has {content} on it, not {staging.kind}")
        if not staging.read_only:
            await self.mounter.check(device, content)
        return content

    async def _grow_if_smaller(self, device: str, staging: Staging) -> None:
        """A disk that grew while it was detached has a file system that does not know it yet."""
        if staging.read_only:
            return
        if staging.key:
            await self.mounter.grow_luks(luks_name(get_volume(staging.volume)), staging.key)
        usage = await self.mounter.usage(staging.path)
        size = await self.mounter.size(device)
        if size - usage.total > max(size // 10, 64 << 20):
            await self.mounter.grow(device, staging.path, staging.kind)

    async def unstage(self, volume_id: str, path: str, *, trim: bool = True) -> None:
        """Unmount and lock again; what is mounted there must be the volume, if it still exists."""
        there = await self.mounted(path)
        volume = find_volume(volume_id)
        if there is not None:
            if volume is not None:
                await self._refuse_stranger(volume.identity, there, path, luks_name(volume))
            if trim and not there.read_only:
                await self.mounter.trim(path)
            await self.mounter.unmount(path)
        if volume is not None:
            await self.mounter.close_luks(luks_name(volume))

    async def _refuse_stranger(
        self, identity: Identity, there: Mounted, path: str, luks: str
    ) -> None:
        if there.source == f"/dev/mapper/{luks}":
            return
        device = choose_device(await self.disks.list(), identity)
        if device is not None and await self.mounter.number(device.path) != there.device:
            raise WrongDisk(f"{path} holds {there.source}, which is not the volume")


def _wwn_of(path: str) -> str:
    return path.rpartition("wwn-")[2] if "wwn-" in path else ""


def _make_folder(path: str) -> None:
    Path(path).mkdir(parents=True, exist_ok=True)


def mkfs_options(staging: Staging) -> tuple[str, ...]:
    params = Params.of_context(staging.context, {})
    block, inode = params.number("blockSize"), params.number("inodeSize")
    if staging.kind == "xfs":
        return (
            *(("-b", f"size={block}") if block else ()),
            *(("-i", f"size={inode}") if inode else ()),
        )
    return (*(("-b", str(block)) if block else ()), *(("-I", str(inode)) if inode else ()))


def mount_options(kind: str, staging: Staging) -> tuple[str, ...]:
    """What the class asks for, and what the file system needs."""
    options = list(staging.flags)
    if kind == "xfs":
        options.append("nouuid")  # a clone has its source's UUID
    if Params.of_context(staging.context, {}).flag("ssd"):
        options.append("noatime")
    if staging.read_only:
        options.append("ro")
    return tuple(dict.fromkeys(options))
