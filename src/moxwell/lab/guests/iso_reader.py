"""
Reads the files in the root directory of an ISO 9660 image as the Linux kernel does.

Numbers that an image stores in both byte orders are read in little-endian only, and the volume
label may be padded with blanks or NUL: go-diskfs writes images that a strict reader rejects. Names
come from Rock Ridge, else from Joliet, else from ISO 9660 in lower case without the version.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from moxwell.errors import Invalid

_SECTOR = 2048
_FIRST_DESCRIPTOR = 16
_LAST_DESCRIPTOR = 64
_JOLIET = (b"%/@", b"%/C", b"%/E")
_IS_DIRECTORY = 0x02


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One record of a directory."""

    extent: int
    size: int
    directory: bool
    name: bytes
    system_use: bytes


def read_iso(image: bytes) -> tuple[str, dict[str, bytes]]:
    """The volume label, and the files of the root directory."""
    primary, joliet = _descriptors(image)
    label = primary[40:72].decode("ascii", "replace").strip(" \0")
    entries = _children(image, _record(primary, 156))
    named = {_rock_ridge(image, entry): entry for entry in entries}
    if None not in named or not entries:
        return label, {str(name): _content(image, e) for name, e in named.items()}
    if joliet is not None:
        found = _children(image, _record(joliet, 156))
        return label, {_version_less(e.name.decode("utf-16-be")): _content(image, e) for e in found}
    return label, {
        _version_less(e.name.decode("ascii")).lower(): _content(image, e) for e in entries
    }


def _descriptors(image: bytes) -> tuple[bytes, bytes | None]:
    """The primary volume descriptor, and that of Joliet."""
    primary, joliet = None, None
    for sector in range(_FIRST_DESCRIPTOR, _LAST_DESCRIPTOR):
        block = image[sector * _SECTOR : (sector + 1) * _SECTOR]
        if len(block) < _SECTOR or block[1:6] != b"CD001" or block[0] == 255:
            break
        if block[0] == 1 and primary is None:
            primary = block
        elif block[0] == 2 and block[88:91] in _JOLIET:
            joliet = block
    if primary is None:
        raise Invalid("the medium is not an ISO 9660 image: it has no primary volume descriptor")
    return primary, joliet


def _record(block: bytes, at: int) -> DirectoryEntry:
    """The directory record at an offset."""
    length = block[at]
    record = block[at : at + length]
    if length < 34 or len(record) < length or 33 + record[32] > length:
        raise Invalid("the medium is not an ISO 9660 image: a directory record is damaged")
    extent, size = struct.unpack_from("<I", record, 2)[0], struct.unpack_from("<I", record, 10)[0]
    end = 33 + record[32]
    padded = end + (1 - record[32] % 2)
    flags = record[25]
    return DirectoryEntry(
        extent, size, bool(flags & _IS_DIRECTORY), record[33:end], record[padded:]
    )


def _content(image: bytes, entry: DirectoryEntry) -> bytes:
    start = entry.extent * _SECTOR
    if start + entry.size > len(image):
        raise Invalid("the medium is not an ISO 9660 image: a file ends beyond the image")
    return image[start : start + entry.size]


def _children(image: bytes, directory: DirectoryEntry) -> list[DirectoryEntry]:
    """The files in a directory; a record never crosses a sector."""
    block, found, at = _content(image, directory), [], 0
    while at < len(block):
        if not block[at]:
            at = (at // _SECTOR + 1) * _SECTOR
            continue
        entry = _record(block, at)
        at += block[at]
        if not entry.directory and entry.name not in (b"\0", b"\1"):
            found.append(entry)
    return found


def _rock_ridge(image: bytes, entry: DirectoryEntry) -> str | None:
    """The name in the NM fields of Rock Ridge; None if there is none."""
    parts = [data[1:] for kind, data in _fields(image, entry.system_use) if kind == b"NM"]
    return b"".join(parts).decode("utf-8", "replace") if parts else None


def _fields(image: bytes, area: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The fields of a system use area, including continuation areas."""
    at, areas = 0, 1
    while at + 4 <= len(area) and area[at + 2] >= 4:
        kind, data = area[at : at + 2], area[at + 4 : at + area[at + 2]]
        at += area[at + 2]
        if kind == b"CE" and len(data) >= 24 and areas < 16:
            block, _, offset, _, length, _ = struct.unpack_from("<6I", data)
            start = block * _SECTOR + offset
            area, at, areas = image[start : start + length], 0, areas + 1
        else:
            yield kind, data


def _version_less(name: str) -> str:
    return name.split(";")[0].rstrip(".")
