"""
Finds rows in the raw pages of a database file and in its write-ahead log, without SQLite.

For files that SQLite cannot open or walk through. Leaf pages of tables hold rows, which their
checksums verify; pages of the index hold the names of rows. Deleted content is overwritten
(``secure_delete``), so what is found was in the database.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moxwell.embedded.apiserver.storage import wal
from moxwell.embedded.apiserver.storage.rows import LogRow, RowName, parse_row

_LEAF_TABLE, _LEAF_INDEX, _INNER_INDEX = 0x0D, 0x0A, 0x02
_HEADERS = {_LEAF_TABLE: 8, _LEAF_INDEX: 8, _INNER_INDEX: 12}
_MAX_CHAIN = 100_000


@dataclass(slots=True)
class CarvedContent:
    """What the pages hold: verified rows, and names, which nothing verifies."""

    rows: dict[int, LogRow] = field(default_factory=dict)
    names: dict[int, RowName] = field(default_factory=dict)


def carve(database: Path) -> CarvedContent:
    """Read all pages, then the pages of each transaction in the write-ahead log."""
    found = CarvedContent()
    data = database.read_bytes() if database.exists() else b""
    size = _page_size(data)
    pages = {n + 1: data[n * size : (n + 1) * size] for n in range(len(data) // size)}
    for number in pages:
        _read_page(pages, number, found)
    touched: set[int] = set()
    for frame in wal.frames_of(database):
        pages[frame.page] = frame.content
        touched.add(frame.page)
        if frame.commit:
            for number in touched:
                _read_page(pages, number, found)
            touched.clear()
    for number in touched:
        _read_page(pages, number, found)
    return found


def _page_size(data: bytes) -> int:
    size = int.from_bytes(data[16:18], "big")
    size = 65536 if size == 1 else size
    return size if 512 <= size <= 65536 and size & (size - 1) == 0 else 4096


def _read_page(pages: Mapping[int, bytes], number: int, found: CarvedContent) -> None:
    page = pages[number]
    start = 100 if number == 1 else 0
    if len(page) < start + 12 or page[start] not in _HEADERS:
        return
    kind = page[start]
    count = int.from_bytes(page[start + 3 : start + 5], "big")
    at = start + _HEADERS[kind]
    for pointer in range(at, min(at + 2 * count, len(page) - 1), 2):
        cell = int.from_bytes(page[pointer : pointer + 2], "big")
        try:
            _read_cell(pages, page, kind, cell, found)
        except (IndexError, ValueError, KeyError, OverflowError):
            continue  # not a cell of ours, or damaged


def _read_cell(
    pages: Mapping[int, bytes], page: bytes, kind: int, at: int, found: CarvedContent
) -> None:
    if kind == _INNER_INDEX:
        at += 4
    length, at = _varint(page, at)
    rowid = 0
    if kind == _LEAF_TABLE:
        rowid, at = _varint(page, at)
    values = tuple(_record(_payload(pages, page, at, length, table=kind == _LEAF_TABLE)))
    if kind == _LEAF_TABLE and len(values) == 6:
        row = parse_row((rowid, *values[1:]))
        if row is not None:
            found.rows[row.revision] = row
    elif kind != _LEAF_TABLE and len(values) == 3:
        store, key, revision = values
        if isinstance(store, bytes) and isinstance(key, bytes) and isinstance(revision, int):
            found.names[revision] = RowName(store.decode(), key.decode(), revision)


def _payload(
    pages: Mapping[int, bytes], page: bytes, at: int, length: int, *, table: bool
) -> bytes:
    """Join the payload of a cell with its overflow pages."""
    size = len(page)
    local, chained = length, size - 4
    most = size - 35 if table else (size - 12) * 64 // 255 - 23
    if length > most:
        least = (size - 12) * 32 // 255 - 23
        local = least + (length - least) % chained
        local = local if local <= most else least
    parts, left = [page[at : at + local]], length - local
    following = int.from_bytes(page[at + local : at + local + 4], "big") if left else 0
    for _ in range(_MAX_CHAIN):
        if left <= 0:
            return b"".join(parts)
        more = pages[following]
        parts.append(more[4 : 4 + min(left, chained)])
        left -= chained
        following = int.from_bytes(more[:4], "big")
    raise ValueError("the chain of overflow pages does not end")


def _record(payload: bytes) -> Iterator[object]:
    """Decode a record: texts and blobs as bytes."""
    end, at = _varint(payload, 0)
    kinds = []
    while at < end:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    at = end
    for kind in kinds:
        value, at = _value(payload, at, kind)
        yield value


def _value(payload: bytes, at: int, kind: int) -> tuple[object, int]:
    if kind in (8, 9):
        return kind - 8, at
    if kind >= 12:
        size = (kind - 12) // 2
        if at + size > len(payload):
            raise ValueError("a value ends after its record")
        return payload[at : at + size], at + size
    size = (0, 1, 2, 3, 4, 6, 8, 8)[kind]
    return (int.from_bytes(payload[at : at + size], "big", signed=True) if size else None), (
        at + size
    )


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count in range(9):
        byte = data[at + count]
        if count == 8:
            return _as_signed(value << 8 | byte), at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + count + 1
    raise ValueError("not a number")


def _as_signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
