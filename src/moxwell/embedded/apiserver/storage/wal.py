"""
Checks the write-ahead log of a file that was not closed.

SQLite stops at the first frame with a wrong checksum, because a power failure may have torn the
last transaction. It also stops there when an earlier, acknowledged transaction is damaged, and all
transactions after it are lost without an error. This module tells the two apart: with
``synchronous=FULL`` a transaction is on disk before the next one is written, so a damaged frame is
a torn write only if it belongs to the last transaction.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from moxwell.embedded.apiserver.storage.errors import DatabaseDamaged

HEADER, FRAME_HEADER = 32, 24
_MAGIC = (0x377F0682, 0x377F0683)


@dataclass(frozen=True, slots=True)
class WalFrame:
    """One page in the write-ahead log."""

    number: int
    page: int
    commit: bool
    valid: bool  # its checksum continues that of the frame before it
    content: bytes


def path_of(database: Path) -> Path:
    return database.with_name(database.name + "-wal")


def check(database: Path) -> bool:
    """
    Whether the last transaction is damaged or torn, so that SQLite drops it.

    DatabaseDamaged if an earlier transaction cannot be read.
    """
    data = _read(database)
    if len(data) < HEADER + FRAME_HEADER:
        return False
    if not _is_header_valid(data):
        raise _damaged(database, "its header")
    found = list(frames(data))
    bad = next((f for f in found if not f.valid), None)
    if bad is None:
        return False
    ends = next((f.number for f in found[bad.number :] if f.commit), len(found))
    if any(f.number > ends for f in found):
        raise _damaged(database, f"frame {bad.number + 1}")
    return True


def _damaged(database: Path, what: str) -> DatabaseDamaged:
    return DatabaseDamaged(
        f"{what} of the write-ahead log {path_of(database)} is damaged, and acknowledged writes "
        f"follow it: run `moxwell repair`, or restore a backup with `moxwell restore`"
    )


def _read(database: Path) -> bytes:
    path = path_of(database)
    return path.read_bytes() if path.exists() else b""


def frames_of(database: Path) -> Iterator[WalFrame]:
    """Yield all frames of the current generation, also damaged ones."""
    data = _read(database)
    if len(data) >= HEADER + FRAME_HEADER:
        yield from frames(data)


def frames(data: bytes) -> Iterator[WalFrame]:
    """Yield the frames with the salts of the header, or all frames if the header is damaged."""
    order = ">" if int.from_bytes(data[:4], "big") & 1 else "<"
    size = _page_size(data)
    salts = data[16:24] if _is_header_valid(data) else b""
    sums = struct.unpack(">II", data[24:32])
    step = FRAME_HEADER + size
    for number, start in enumerate(range(HEADER, len(data) - step + 1, step)):
        head = data[start : start + FRAME_HEADER]
        content = data[start + FRAME_HEADER : start + step]
        if salts and head[8:16] != salts and not _continues(data, start + step, step, salts):
            return  # a frame of an earlier generation
        page, pages = struct.unpack(">II", head[:8])
        made = _checksum(head[:8] + content, sums, order)
        sums = struct.unpack(">II", head[16:24])  # the next frame continues the stored sums
        valid = made == sums and head[8:16] == data[16:24]
        yield WalFrame(number, page, pages > 0, valid, content)


def _continues(data: bytes, start: int, step: int, salts: bytes) -> bool:
    """Whether a later frame has the salts of the header: then only the salts here are damaged."""
    return any(data[at + 8 : at + 16] == salts for at in range(start, len(data), step))


def _page_size(data: bytes) -> int:
    size = int.from_bytes(data[8:12], "big")
    return size if 512 <= size <= 65536 and size & (size - 1) == 0 else 4096


def _is_header_valid(data: bytes) -> bool:
    magic = int.from_bytes(data[:4], "big")
    if magic not in _MAGIC:
        return False
    order = ">" if magic & 1 else "<"
    return _checksum(data[:24], (0, 0), order) == struct.unpack(">II", data[24:32])


def _checksum(data: bytes, sums: tuple[int, ...], order: str) -> tuple[int, int]:
    one, two = sums
    for first, second in struct.iter_unpack(f"{order}II", data):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two
