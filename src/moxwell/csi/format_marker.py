"""
The mark on a disk that is being made: whoever dies in the middle leaves a disk that can be made.

In: a device. Out: a few blocks of text on it (``mark``), whether they stand (``is_marked``), and
zeros in their place (``clear``). ``mkfs`` and ``luksFormat`` write their heads piece by piece; one
that is killed leaves what is neither empty nor known. So the mark is written, and on the disk,
before either begins, and is taken away, on the disk too, before anything is mounted: while it
stands, nobody was ever given the disk by us. The surprise: the mark alone is not believed. Somebody
else may have mounted what is there, so ``is_unused`` looks for a proof that nobody can have: an
XFS that says it is in the making, an ext4 that was never mounted, a LUKS head without a key.

There are several places, because no single one is left alone by every size and option of ``mkfs``;
a block that is not exactly the mark is never written to.
"""

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

MARK = b"moxwell: this disk is being made; nothing was ever kept in it\n".ljust(4096, b"\0")
PLACES = tuple((mib << 20) + 12288 for mib in (3, 7, 25, 65, 191))
_EXT_HEAD, _EXT_MOUNTED, _EXT_MOUNTS = 1024, 0x2C, 0x34
_XFS_MAKING = 126
_LUKS_TEXT = 4096
UNKNOWN, XFS, LUKS = "", "xfs", "crypto_LUKS"
EXT = ("ext2", "ext3", "ext4")


def mark(device: str) -> None:
    """Say on the disk that it is being made; raises OSError if somebody else holds it."""
    size = _size(device)
    _write(device, [place for place in PLACES if place + len(MARK) <= size], MARK)


def is_marked(device: str) -> bool:
    return any(_standing(device))


def clear(device: str) -> None:
    """Take the mark away where it still stands; nothing is written if there is none."""
    standing = list(_standing(device))
    if standing:
        _write(device, standing, bytes(len(MARK)))


def is_unused(device: str, kind: str) -> bool:
    """Can nobody have kept anything in what is there? ``kind`` is what it is recognised as."""
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
    """LUKS2 keeps its keys in a JSON text; where that cannot be read, there may be one."""
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
    return (place for place in PLACES if _read(device, place, len(MARK)) == MARK)


def _size(device: str) -> int:
    with Path(device).open("rb") as disk:
        return disk.seek(0, os.SEEK_END)


def _read(device: str, place: int, count: int) -> bytes:
    with Path(device).open("rb") as disk:
        disk.seek(place)
        return disk.read(count)


def _write(device: str, places: list[int], data: bytes) -> None:
    """Written through to the disk; a block device that is mounted or held is refused."""
    disk = os.open(device, os.O_WRONLY | os.O_EXCL)
    try:
        for place in places:
            os.pwrite(disk, data, place)
        os.fsync(disk)
    finally:
        os.close(disk)
