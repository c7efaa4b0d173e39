"""
A mounter that uses plain files, for machines without mount permission.

Mounts are kept in memory, directories are mount points, and the head of a file is its content:
``mkfs`` writes random data and then the file system type. It refuses what a kernel refuses: a
missing mount point, a wrong passphrase, and random data on a new encrypted disk.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from moxwell.csi import format_marker
from moxwell.csi.devices import BlockDevice
from moxwell.csi.errors import DeviceMismatch
from moxwell.csi.ids import VolumeId
from moxwell.csi.mounter import EMPTY, CommandFailed, MountEntry, Usage, WrongKey
from moxwell.errors import Missing

HEAD = 64
NOISE = "?"


class OneDisk:
    """A guest with one disk: a file with the WWN and serial of a volume."""

    def __init__(self, path: Path, volume: VolumeId) -> None:
        self.path, self._identity = path, volume.identity

    async def list(self) -> tuple[BlockDevice, ...]:
        return (BlockDevice(str(self.path), self._identity.wwn, self._identity.serial),)

    async def rescan(self) -> None:
        return None


class FileMounter:
    """Implements ``Mounter`` with files."""

    def __init__(self) -> None:
        self.mounts: list[MountEntry] = []
        self.grown: dict[str, int] = {}
        self._open: dict[str, str] = {}  # LUKS name -> device

    def _file(self, device: str) -> Path:
        name = device.removeprefix("/dev/mapper/")
        file = Path(self._open.get(name, device))
        if not file.exists():
            raise Missing(f"{device} does not exist")
        return file

    async def number(self, path: str) -> str:
        name = path.removeprefix("/dev/mapper/")
        self._file(path)
        return f"luks:{name}" if name in self._open else f"file:{path}"

    async def table(self) -> tuple[MountEntry, ...]:
        return tuple(self.mounts)

    async def probe(self, device: str) -> str:
        parts = self._head(device).split(":")
        if not device.startswith("/dev/mapper/"):
            return self._known(device, parts[0])
        if not parts[3]:
            raise DeviceMismatch(f"{device} is not empty and its content is not recognised")
        return parts[3]

    def _known(self, device: str, word: str) -> str:
        if word == NOISE and format_marker.is_marked(device):
            return ""
        if word == NOISE:
            raise DeviceMismatch(f"{device} is not empty and its content is not recognised")
        return word

    def _head(self, device: str) -> str:
        file = self._file(device)
        with file.open("rb") as disk:
            return disk.read(HEAD).rstrip(b"\0").decode()

    def set_head(self, device: str, text: str) -> None:
        with self._file(device).open("r+b") as disk:
            disk.write(text.encode().ljust(HEAD, b"\0"))

    async def make(self, device: str, kind: str, options: Sequence[str]) -> None:
        if device.startswith("/dev/mapper/"):
            self.set_head(device, f"{self._head(device).rpartition(':')[0]}:{kind}")
            return
        self.mark(device)
        self.set_head(device, NOISE)
        self.set_head(device, kind)
        self.clear(device)

    def mark(self, device: str) -> None:
        format_marker.mark(device)

    def clear(self, device: str) -> None:
        format_marker.clear(device)

    async def check(self, device: str, kind: str) -> None:
        self._file(device)

    async def mount(self, device: str, target: str, kind: str, options: Sequence[str]) -> None:
        if await self.probe(device) != kind:
            raise CommandFailed(f"mount: {device} is not {kind}")
        if not _is_directory(target):
            raise CommandFailed(f"mount: {target} does not exist")
        only = "ro" in options
        if not only and not device.startswith("/dev/mapper/"):
            self.clear(device)
        self.mounts.append(MountEntry(await self.number(device), "/", target, only, device))
        self.grown.setdefault(device, self._file(device).stat().st_size)

    async def bind(self, source: str, target: str, *, read_only: bool) -> None:
        if not _is_there(target):
            raise CommandFailed(f"mount: {target} does not exist")
        over = next((m for m in self.mounts if m.target == source), None)
        number = over.device if over else await self.number(source)
        self.mounts.append(MountEntry(number, "/", target, read_only, source))

    async def unmount(self, target: str) -> None:
        found = next((m for m in reversed(self.mounts) if m.target == target), None)
        if found is None:
            raise CommandFailed(f"umount: {target} is not mounted")
        self.mounts.remove(found)

    async def grow(self, device: str, target: str, kind: str) -> None:
        self.grown[device] = self._file(device).stat().st_size

    async def trim(self, target: str) -> None:
        return None

    async def usage(self, path: str) -> Usage:
        over = next((m for m in self.mounts if m.target == path), None)
        if over is None:
            raise Missing(f"{path} is not mounted")
        total = next((g for d, g in self.grown.items() if over.device.endswith(d)), 1 << 20)
        return Usage(total, 0, total, 1000, 1, 999)

    async def size(self, device: str) -> int:
        bound = next((m for m in self.mounts if m.target == device), None)
        return self._file(bound.source if bound else device).stat().st_size

    async def open_luks(self, device: str, name: str, key: bytes, *, fresh: bool) -> str:
        word = hashlib.sha256(key).hexdigest()[:16]
        if fresh:
            self.mark(device)
            self.set_head(device, NOISE)
            self.set_head(device, f"crypto_LUKS:{word}:{EMPTY}:")
        if self._head(device).split(":")[1] != word:
            raise WrongKey(f"the passphrase does not unlock {device}")
        self.clear(device)
        self._open[name] = device
        return f"/dev/mapper/{name}"

    async def is_empty_luks(self, device: str) -> bool:
        return self._head(device).split(":")[2] == EMPTY

    async def fill_luks(self, device: str) -> None:
        self.set_head(device, self._head(device).replace(f":{EMPTY}:", "::"))

    async def close_luks(self, name: str) -> None:
        self._open.pop(name, None)

    async def grow_luks(self, name: str, key: bytes) -> None:
        if name not in self._open:
            raise CommandFailed(f"cryptsetup: {name} is not active")


def _is_directory(path: str) -> bool:
    return Path(path).is_dir()


def _is_there(path: str) -> bool:
    return Path(path).exists()
