"""
The disks of guests: a file for each volume, which the guest sees as a SCSI disk.

A volume gets its file when it is attached the first time; the file stays while the volume moves
from guest to guest. Snapshots and clones are copies of the file: the simulator names them by
content ids and asks for the current one before it copies a volume.
"""

import hashlib
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from moxwell.lab.guests.disks import ScsiDisk, list_disks
from moxwell.lab.proxmox.state import SimRegion, SimVolume

BUS = "sys/bus/scsi/devices"  # in the root of a guest
SECTOR = 512


class DiskFiles:
    """The files of all volumes of a region, and the copies that content ids name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._copies = 0
        for name in ("volumes", "contents"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def file(self, storage: str, node: str, volume: SimVolume) -> Path:
        """Where the data of a volume is; a new volume of the same name has another file."""
        key = f"{storage}|{node}|{volume.name}|{volume.ctime}"
        return self._folder / "volumes" / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.img"

    def open(self, storage: str, node: str, volume: SimVolume) -> Path:
        """The file with at least the size of the volume; it begins as a copy of its content."""
        file, content = self.file(storage, node, volume), self._content(volume.content_id)
        if not file.exists():
            if content.exists():
                _copy(content, file)
            else:
                file.touch()
        with file.open("ab") as data:
            if file.stat().st_size < volume.size:
                data.truncate(volume.size)
        return file

    def content_id(self, storage: str, node: str, volume: SimVolume) -> str:
        """Copy what the volume contains now; without a file nobody wrote to it."""
        file = self.file(storage, node, volume)
        if not file.exists():
            return volume.content_id
        self._copies += 1
        made = hashlib.sha256(f"{file.name}|{self._copies}".encode()).hexdigest()[:12]
        _copy(file, self._content(made))
        return made

    def _content(self, content_id: str) -> Path:
        name = hashlib.sha256(content_id.encode()).hexdigest()[:24]
        return self._folder / "contents" / f"{name}.img"


@dataclass(frozen=True, slots=True)
class PluggedDisk:
    """A disk of a guest: its loop device and the device in the guest."""

    disk: ScsiDisk
    loop: str
    name: str  # sdb


class GuestDisks(ABC):
    """The disks of one guest, which follow the configuration of its VM."""

    def __init__(self, region: SimRegion, node: str, files: DiskFiles) -> None:
        self._region, self._node, self._files = region, node, files
        self._disks: dict[str, ScsiDisk] = {}
        self._lock, self._ended = Lock(), False

    def follow(self, conf: Mapping[str, Any]) -> None:
        """Plug, unplug and resize disks as the running VM has them, except the boot disk."""
        with self._lock:
            if not self._ended:
                self._follow({d.slot: d for d in list_disks(conf) if d.slot != "scsi0"})

    def _follow(self, wanted: Mapping[str, ScsiDisk]) -> None:
        for slot, disk in list(self._disks.items()):
            if slot not in wanted or wanted[slot].volume != disk.volume:
                del self._disks[slot]
                self._unplug(slot)
            elif wanted[slot].size != disk.size:
                self._disks[slot] = wanted[slot]
                self._resize(wanted[slot], self._open(wanted[slot]))
        for slot, disk in wanted.items():
            if slot not in self._disks:
                self._plug(disk, self._open(disk))
                self._disks[slot] = disk

    def unplug_all(self) -> None:
        """Unplug the disks of a guest that ended."""
        with self._lock:
            self._ended = True
            for slot in list(self._disks):
                self._unplug(slot)
            self._disks.clear()

    @abstractmethod
    def _plug(self, disk: ScsiDisk, file: Path) -> None: ...

    @abstractmethod
    def _resize(self, disk: ScsiDisk, file: Path) -> None: ...

    @abstractmethod
    def _unplug(self, slot: str) -> None: ...

    def _open(self, disk: ScsiDisk) -> Path:
        name, _, rest = disk.volume.partition(":")
        storage = self._region.storages[name]
        volume = storage.volumes_on(self._node)[rest]
        return self._files.open(name, "" if storage.shared else self._node, volume)


class LoopDisks(GuestDisks):
    """Loop devices of a container; ``root`` is its root directory, ``/proc/PID/root``."""

    def __init__(self, root: Path, region: SimRegion, node: str, files: DiskFiles) -> None:
        super().__init__(region, node, files)
        self._root = root
        self._plugged: dict[str, PluggedDisk] = {}

    def _plug(self, disk: ScsiDisk, file: Path) -> None:
        command = ["losetup", "-f", "--show", str(file)]
        loop = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        number = int(disk.slot.removeprefix("scsi"))
        name = f"sd{chr(ord('a') + number)}" if number < 26 else f"sda{chr(ord('a') + number - 26)}"
        plugged = PluggedDisk(disk, loop, name)
        self._plugged[disk.slot] = plugged
        subprocess.run(["cp", "-a", loop, str(self._root / "dev" / name)], check=True)
        entry = self._entry(disk)
        (entry / "block" / name).mkdir(parents=True)
        (entry / "vendor").write_text("QEMU    \n")
        (entry / "wwid").write_text(f"naa.{disk.wwn.removeprefix('0x')}\n")
        serial = disk.serial.encode()
        (entry / "vpd_pg80").write_bytes(bytes((0, 0x80, 0, len(serial))) + serial)
        self._write_size(plugged)

    def _resize(self, disk: ScsiDisk, file: Path) -> None:
        plugged = self._plugged[disk.slot]
        subprocess.run(["losetup", "-c", plugged.loop], check=True)
        self._plugged[disk.slot] = PluggedDisk(disk, plugged.loop, plugged.name)
        self._write_size(self._plugged[disk.slot])

    def _write_size(self, plugged: PluggedDisk) -> None:
        size = self._entry(plugged.disk) / "block" / plugged.name / "size"
        size.write_text(f"{plugged.disk.size // SECTOR}\n")

    def _unplug(self, slot: str) -> None:
        plugged = self._plugged.pop(slot)
        shutil.rmtree(self._entry(plugged.disk), ignore_errors=True)
        (self._root / "dev" / plugged.name).unlink(missing_ok=True)
        subprocess.run(["losetup", "-d", plugged.loop], check=True)

    def _entry(self, disk: ScsiDisk) -> Path:
        return self._root / BUS / f"2:0:0:{disk.slot.removeprefix('scsi')}"


def _copy(source: Path, target: Path) -> None:
    """Copy a file with its holes; the kernel writes what it holds back before."""
    subprocess.run(["sync", str(source)], check=True)
    partial = target.with_suffix(".partial")
    words = ["cp", "--sparse=always", "--reflink=auto", str(source), str(partial)]
    subprocess.run(words, check=True)
    partial.rename(target)
