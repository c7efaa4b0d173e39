"""
A marker on a disk while it is being formatted, so that formatting can be resumed after a crash.

An interrupted ``mkfs`` or ``luksFormat`` leaves a disk that is neither empty nor recognised. The
marker is written and synced before formatting and cleared before the first mount; while it is
present, the driver never handed out the disk. The marker alone does not permit formatting, because
another driver may have mounted the disk: ``is_unused`` also requires an XFS with its in-progress
flag, an ext4 that was never mounted, or a LUKS header without key slots.

There are several offsets, because no single one is left unwritten by every size and option of
``mkfs``. A block that is not exactly the marker is never overwritten.
"""

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

MARK = b"moxwell: this disk is being made; nothing was ever kept in it\n".ljust(4096, b"\0")
OFFSETS = tuple((mib << 20) + 12288 for mib in (3, 7, 25, 65, 191))
_EXT_HEAD, _EXT_MOUNTED, _EXT_MOUNTS = 1024, 0x2C, 0x34
_XFS_MAKING = 126
_LUKS_TEXT = 4096
UNKNOWN, XFS, LUKS = "", "xfs", "crypto_LUKS"
EXT = ("ext2", "ext3", "ext4")


def mark(device: str) -> None:
    """Write the marker; raises OSError if the device is in use."""
    size = _size(device)
    _write(device, [location for location in OFFSETS if location + len(MARK) <= size], MARK)


def is_marked(device: str) -> bool:
    return any(_standing(device))


def clear(device: str) -> None:
    """Overwrite the marker with zeros; writes nothing if there is none."""
    standing = list(_standing(device))
    if standing:
        _write(device, standing, bytes(len(MARK)))


def is_unused(device: str, kind: str) -> bool:
    """Return whether the detected content ``kind`` provably never held data."""
    if kind == UNKNOWN:
        return True
    if kind == XFS:
        return _read(device, _XFS_MAKING, 1) == b"\1"
    if kind in EXT:
        (mounted,) = struct.unpack("<I", _read(device, _EXT_HEAD + _EXT_MOUNTED, 4))
        (mounts,) = struct.unpack("<H", _read(device, _EXT_HEAD + _EXT_MOUNTS, 2))
        return not mounted and not mounts
    return kind == LUKS and not _has_key(device)


def _has_key(device: str) -> bool:
    """Return whether a LUKS2 header has key slots; True if it cannot be parsed."""
    head = _read(device, 0, 16)
    version, size = struct.unpack(">H", head[6:8])[0], struct.unpack(">Q", head[8:16])[0]
    if version != 2 or not _LUKS_TEXT < size <= 4 << 20:
        return True
    text = _read(device, _LUKS_TEXT, size - _LUKS_TEXT).partition(b"\0")[0]
    try:
        return bool(text) and bool(json.loads(text)["keyslots"])
    except (ValueError, KeyError, TypeError):
        return True


def _standing(device: str) -> Iterator[int]:
    return (location for location in OFFSETS if _read(device, location, len(MARK)) == MARK)


def _size(device: str) -> int:
    with Path(device).open("rb") as disk:
        return disk.seek(0, os.SEEK_END)


def _read(device: str, location: int, count: int) -> bytes:
    with Path(device).open("rb") as disk:
        disk.seek(location)
        return disk.read(count)


def _write(device: str, locations: list[int], data: bytes) -> None:
    """Write and sync; O_EXCL refuses a block device that is mounted or in use."""
    disk = os.open(device, os.O_WRONLY | os.O_EXCL)
    try:
        for location in locations:
            os.pwrite(disk, data, location)
        os.fsync(disk)
    finally:
        os.close(disk)
