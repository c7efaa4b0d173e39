"""
Finds the block device of a volume on this node by WWN and serial; reads sysfs.

Both are derived from the volume id and both must match. Links in ``/dev/disk`` can be stale after a
disk was replaced, so only ``/sys`` is read.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from moxwell.clock import Clock
from moxwell.csi.errors import DeviceMismatch, FailedPrecondition
from moxwell.csi.ids import LEGACY_WWN, DiskIdentity

TIMEOUT_SECONDS, POLL_SECONDS = 20.0, 0.25


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """A block device of this node."""

    path: str
    wwn: str
    serial: str = ""
    size: int = 0


class DeviceSource(Protocol):
    """Lists the block devices of a node."""

    async def list(self) -> tuple[BlockDevice, ...]:
        """All SCSI disks."""
        ...

    async def rescan(self) -> None:
        """Make the kernel scan for new disks and changed sizes."""
        ...


def is_volume(device: BlockDevice, identity: DiskIdentity, expected_wwn: str = "") -> bool:
    """Return whether the device is the volume; disks of proxmox-csi-plugin have only a WWN."""
    if device.wwn == identity.wwn:
        return device.serial in ("", identity.serial)
    return bool(LEGACY_WWN.fullmatch(expected_wwn)) and device.wwn == expected_wwn


def choose_device(
    devices: tuple[BlockDevice, ...], identity: DiskIdentity, expected_wwn: str = ""
) -> BlockDevice | None:
    """The device of the volume, or None; raises DeviceMismatch if the result is ambiguous."""
    found = [d for d in devices if is_volume(d, identity, expected_wwn)]
    if len(found) > 1:
        raise DeviceMismatch(f"{len(found)} devices have the WWN {identity.wwn}")
    for device in devices:
        if device.wwn == identity.wwn and device not in found:
            raise DeviceMismatch(f"{device.path} has the WWN of the volume but not its serial")
    return found[0] if found else None


async def wait_device(
    disks: DeviceSource, clock: Clock, identity: DiskIdentity, expected_wwn: str = ""
) -> BlockDevice:
    """Wait until the kernel shows the device of the volume."""
    waited = 0.0
    while True:
        device = choose_device(await disks.list(), identity, expected_wwn)
        if device is not None:
            return device
        if waited >= TIMEOUT_SECONDS:
            raise FailedPrecondition(
                f"no disk with WWN {identity.wwn} appeared within {TIMEOUT_SECONDS:.0f} s: is the "
                "volume attached, and does the guest's kernel support virtio-scsi?"
            )
        await disks.rescan()
        await clock.sleep(POLL_SECONDS)
        waited += POLL_SECONDS


class SysfsDevices:
    """Reads SCSI disks of QEMU from sysfs."""

    def __init__(self, sys: Path = Path("/sys"), dev: Path = Path("/dev")) -> None:
        self._sys, self._dev = sys, dev

    async def list(self) -> tuple[BlockDevice, ...]:
        return self.read()

    def read(self) -> tuple[BlockDevice, ...]:
        found = []
        for entry in sorted((self._sys / "bus/scsi/devices").glob("*:*:*:*")):
            wwid, blocks = _text(entry / "wwid"), sorted(entry.glob("block/*"))
            if _text(entry / "vendor") != "QEMU" or not blocks:
                continue
            wwn = "0x" + wwid.removeprefix("naa.").lower() if wwid.startswith("naa.") else ""
            size = int(_text(blocks[0] / "size") or 0) * 512
            path = str(self._dev / blocks[0].name)
            found.append(BlockDevice(path, wwn, _serial(entry / "vpd_pg80"), size))
        return tuple(found)

    async def rescan(self) -> None:
        self._scan()

    def _scan(self) -> None:
        for scan in (self._sys / "class/scsi_host").glob("host*/scan"):
            _write(scan, "- - -")
        for size in (self._sys / "bus/scsi/devices").glob("*:*:*:*/rescan"):
            _write(size, "1")

    def count_other(self, ours: frozenset[str]) -> int:
        """The number of disks that occupy a slot and are not volumes."""
        return sum(1 for d in self.read() if d.wwn not in ours)


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _serial(file: Path) -> str:
    """The serial in VPD page 0x80, after a header of four bytes."""
    try:
        return file.read_bytes()[4:].decode("ascii", "replace").strip("\0 ")
    except OSError:
        return ""


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except OSError:
        return
