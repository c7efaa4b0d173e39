"""
The SCSI disks that the kernel of a simulated guest sees.

Pure: converts the drives of the running VM to disks with WWN and serial. A volume is identified by
both, never by its slot.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moxwell.api.quantity import Quantity
from moxwell.errors import Busy, Conflict

SLOTS = 31
_SCSI = re.compile(r"scsi(\d+)$")


class DiskNotFound(Busy):
    """The disk of the volume is not attached."""

    reason = "DiskNotFound"


class DiskMismatch(Conflict):
    """The disk with the WWN of the volume is ambiguous or has another serial."""

    reason = "DiskMismatch"


@dataclass(frozen=True, slots=True)
class ScsiDisk:
    """One SCSI disk."""

    slot: str
    volume: str
    wwn: str = ""
    serial: str = ""
    size: int = 0


def list_disks(conf: Mapping[str, Any]) -> tuple[ScsiDisk, ...]:
    """List the SCSI disks of a running VM, without CD-ROM drives."""
    found = []
    for slot, text in conf.items():
        volume, *rest = str(text).split(",")
        options = dict(part.partition("=")[::2] for part in rest)
        if _SCSI.match(slot) and options.get("media") != "cdrom":
            size = _bytes(options.get("size", "0"))
            wwn = options.get("wwn", "").lower()
            found.append(ScsiDisk(slot, volume, wwn, options.get("serial", ""), size))
    return tuple(sorted(found, key=lambda d: int(d.slot[4:])))


def find_disk(disks: tuple[ScsiDisk, ...], attached: Mapping[str, str]) -> ScsiDisk:
    """Find the disk with the WWN and serial of an attachment; raises unless exactly one matches."""
    wwn, serial = attached.get("wwn", "").lower(), attached.get("serial", "")
    same = [d for d in disks if wwn and d.wwn == wwn]
    if not same:
        raise DiskNotFound(f"no disk has the WWN {wwn or 'unknown'}")
    if len(same) > 1:
        raise DiskMismatch(f"{len(same)} disks have the WWN {wwn}")
    if serial and same[0].serial != serial:
        raise DiskMismatch(f"{same[0].slot} has the WWN of the volume but not its serial")
    return same[0]


def max_volumes(disks: tuple[ScsiDisk, ...]) -> int:
    """The number of volumes that fit on the SCSI controller beside the other disks."""
    others = sum(1 for d in disks if not d.serial.startswith("pvc"))
    return SLOTS - max(others, 1)


def _bytes(text: str) -> int:
    unit = text[-1:] if text[-1:] in "KMGT" else ""
    return Quantity.parse(f"{text.removesuffix(unit)}{unit}{'i' if unit else ''}").value
