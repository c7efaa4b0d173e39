"""
The disks that a simulated guest has: what its kernel would show of them.

Pure: from the drives of the running guest to devices known by WWN and serial. A volume is found by
both, never by its slot; a disk with the right WWN and another serial is somebody else's.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moxwell.api.quantity import Quantity
from moxwell.errors import Busy, Conflict

SLOTS = 31
_SCSI = re.compile(r"scsi(\d+)$")


class NoDisk(Busy):
    """The volume's disk is not there (yet)."""

    reason = "NoDisk"


class WrongDisk(Conflict):
    """A disk that says it is the volume, and is not."""

    reason = "WrongDisk"


@dataclass(frozen=True, slots=True)
class Disk:
    """One SCSI disk."""

    slot: str
    volume: str
    wwn: str = ""
    serial: str = ""
    size: int = 0


def list_disks(conf: Mapping[str, Any]) -> tuple[Disk, ...]:
    """Every SCSI disk of a running guest; optical drives are none."""
    found = []
    for slot, text in conf.items():
        volume, *rest = str(text).split(",")
        options = dict(part.partition("=")[::2] for part in rest)
        if _SCSI.match(slot) and options.get("media") != "cdrom":
            size = _bytes(options.get("size", "0"))
            wwn = options.get("wwn", "").lower()
            found.append(Disk(slot, volume, wwn, options.get("serial", ""), size))
    return tuple(sorted(found, key=lambda d: int(d.slot[4:])))


def find_disk(disks: tuple[Disk, ...], attached: Mapping[str, str]) -> Disk:
    """The disk of an attachment; raises unless it is there and is beyond doubt."""
    wwn, serial = attached.get("wwn", "").lower(), attached.get("serial", "")
    same = [d for d in disks if wwn and d.wwn == wwn]
    if not same:
        raise NoDisk(f"no disk with WWN {wwn or 'unknown'} appeared")
    if len(same) > 1:
        raise WrongDisk(f"{len(same)} disks say they are {wwn}")
    if serial and same[0].serial != serial:
        raise WrongDisk(f"{same[0].slot} has the WWN of the volume but not its serial")
    return same[0]


def most_volumes(disks: tuple[Disk, ...]) -> int:
    """How many volumes fit beside what else sits on the controller."""
    others = sum(1 for d in disks if not d.serial.startswith("pvc"))
    return SLOTS - max(others, 1)


def _bytes(text: str) -> int:
    unit = text[-1:] if text[-1:] in "KMGT" else ""
    return Quantity.parse(f"{text.removesuffix(unit)}{unit}{'i' if unit else ''}").value
