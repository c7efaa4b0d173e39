"""
The disks of this guest, found by what they are and not by where they sit.

In: the identity of a volume. Out: the device that has it, or none. The kernel tells of every SCSI
disk its WWN and, on page 0x80, its serial; both derive from the volume, and both must fit. The
surprise: a device link in /dev may be stale for a moment after a disk was exchanged, so links are
never believed; the kernel's own tree is read each time.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from moxwell.clock import Clock
from moxwell.csi.errors import NotNow, WrongDisk
from moxwell.csi.ids import LEGACY_WWN, Identity

LOOK_SECONDS, STEP_SECONDS = 20.0, 0.25


@dataclass(frozen=True, slots=True)
class Device:
    """A disk that is there."""

    path: str
    wwn: str
    serial: str = ""
    size: int = 0


class Disks(Protocol):
    """Where disks are found."""

    async def list(self) -> tuple[Device, ...]:
        """Every disk there is."""
        ...

    async def rescan(self) -> None:
        """Let the kernel look for disks, and at their sizes, again."""
        ...


def is_volume(device: Device, identity: Identity, expected_wwn: str = "") -> bool:
    """Is this device the volume? By WWN and serial; by WWN alone for the Go driver's."""
    if device.wwn == identity.wwn:
        return device.serial in ("", identity.serial)
    return bool(LEGACY_WWN.fullmatch(expected_wwn)) and device.wwn == expected_wwn


def choose_device(
    devices: tuple[Device, ...], identity: Identity, expected_wwn: str = ""
) -> Device | None:
    """The one device that is the volume; refuses where it is not beyond doubt."""
    found = [d for d in devices if is_volume(d, identity, expected_wwn)]
    if len(found) > 1:
        raise WrongDisk(f"{len(found)} devices say they are {identity.wwn}")
    for device in devices:
        if device.wwn == identity.wwn and device not in found:
            raise WrongDisk(f"{device.path} has the WWN of the volume but not its serial")
    return found[0] if found else None


async def wait_device(
    disks: Disks, clock: Clock, identity: Identity, expected_wwn: str = ""
) -> Device:
    """The volume's device; it may take the kernel a moment to see it."""
    waited = 0.0
    while True:
        device = choose_device(await disks.list(), identity, expected_wwn)
        if device is not None:
            return device
        if waited >= LOOK_SECONDS:
            raise NotNow(
                f"no disk with WWN {identity.wwn} appeared within {LOOK_SECONDS:.0f} s: is the "
                "volume attached, and does the guest's kernel know virtio-scsi?"
            )
        await disks.rescan()
        await clock.sleep(STEP_SECONDS)
        waited += STEP_SECONDS


class SysDisks:
    """The disks that the kernel shows below /sys."""

    def __init__(self, sys: Path = Path("/sys"), dev: Path = Path("/dev")) -> None:
        self._sys, self._dev = sys, dev

    async def list(self) -> tuple[Device, ...]:
        return self.read()

    def read(self) -> tuple[Device, ...]:
        found = []
        for entry in sorted((self._sys / "bus/scsi/devices").glob("*:*:*:*")):
            wwid, blocks = _text(entry / "wwid"), sorted(entry.glob("block/*"))
            if _text(entry / "vendor") != "QEMU" or not blocks:
                continue
            wwn = "0x" + wwid.removeprefix("naa.").lower() if wwid.startswith("naa.") else ""
            size = int(_text(blocks[0] / "size") or 0) * 512
            path = str(self._dev / blocks[0].name)
            found.append(Device(path, wwn, _serial(entry / "vpd_pg80"), size))
        return tuple(found)

    async def rescan(self) -> None:
        self._poke()

    def _poke(self) -> None:
        for scan in (self._sys / "class/scsi_host").glob("host*/scan"):
            _write(scan, "- - -")
        for size in (self._sys / "bus/scsi/devices").glob("*:*:*:*/rescan"):
            _write(size, "1")

    def count_others(self, ours: frozenset[str]) -> int:
        """Disks that take a slot and are nobody's volume."""
        return sum(1 for d in self.read() if d.wwn not in ours)


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _serial(file: Path) -> str:
    """The serial on page 0x80: four bytes of head, then text."""
    try:
        return file.read_bytes()[4:].decode("ascii", "replace").strip("\0 ")
    except OSError:
        return ""


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except OSError:
        return
