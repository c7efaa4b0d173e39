"""
Builds and reads the bootstrap ISO: an ISO 9660 image with the label ``cidata``. Pure.

Rock Ridge and Joliet both contain the real file names. Equal files give equal bytes, because all
dates in the image are fixed; a repeated upload changes nothing.
"""

import io
from collections.abc import Iterator, Mapping
from typing import Any

from pycdlib import PyCdlib
from pycdlib.dates import DirectoryRecordDate, VolumeDescriptorDate

LABEL = "cidata"
_MOMENT = b"2026010100000000\x00"
_SECTOR, _MODIFIED = 2048, 830  # position of the modification date in a volume descriptor


def build_iso(files: Mapping[str, bytes], label: str = LABEL) -> bytes:
    """An ISO image with ``files`` in its root directory."""
    image = PyCdlib()
    image.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=label)
    try:
        for number, (name, data) in enumerate(sorted(files.items())):
            image.add_fp(
                io.BytesIO(data),
                len(data),
                f"/FILE{number}.;1",
                rr_name=name,
                joliet_path=f"/{name}",
            )
        image.force_consistency()
        _fix_dates(image)
        out = io.BytesIO()
        image.write_fp(out)
        return _fix_modified(out.getvalue())
    finally:
        image.close()


def read_iso(data: bytes) -> dict[str, bytes]:
    """The files in the root directory of an image."""
    image = PyCdlib()
    image.open_fp(io.BytesIO(data))
    try:
        found = {}
        for child in image.list_children(joliet_path="/"):
            if child.is_file():
                name = child.file_identifier().decode("utf-16-be")
                buffer = io.BytesIO()
                image.get_file_from_iso_fp(buffer, joliet_path=f"/{name}")
                found[name] = buffer.getvalue()
        return found
    finally:
        image.close()


def _fix_dates(image: Any) -> None:
    for descriptor in [*image.pvds, *image.svds]:
        descriptor.volume_creation_date = _volume_date()
        descriptor.volume_effective_date = _volume_date()
        for record in _records(descriptor.root_directory_record()):
            record.date = _record_date()
            _fix_rock_ridge(record)


def _fix_modified(data: bytes) -> bytes:
    """Set the modification date, which pycdlib takes from the clock while writing."""
    image = bytearray(data)
    at = 16 * _SECTOR
    while image[at] in (1, 2):  # the primary and the supplementary descriptors
        image[at + _MODIFIED : at + _MODIFIED + len(_MOMENT)] = _MOMENT
        at += _SECTOR
    return bytes(image)


def _records(record: Any) -> Iterator[Any]:
    yield record
    for child in record.children:
        if child.is_dot() or child.is_dotdot() or child.is_file():
            yield child
        else:
            yield from _records(child)


def _fix_rock_ridge(record: Any) -> None:
    """Set the dates of Rock Ridge, in the record or in its continuation area."""
    if record.rock_ridge is None:
        return
    for area in (record.rock_ridge.dr_entries, record.rock_ridge.ce_entries):
        stamps = area.tf_record if area is not None else None
        if stamps is not None:
            for name in ("creation_time", "access_time", "modification_time"):
                if getattr(stamps, name) is not None:
                    setattr(stamps, name, _record_date())
            if stamps.attribute_change_time is not None:
                stamps.attribute_change_time = _record_date()


def _record_date() -> DirectoryRecordDate:
    date = DirectoryRecordDate()
    date.years_since_1900, date.month, date.day_of_month = 126, 1, 1
    date.hour = date.minute = date.second = date.gmtoffset = 0
    date._initialized = True  # all constructors read the local time zone
    return date


def _volume_date() -> VolumeDescriptorDate:
    date = VolumeDescriptorDate()
    date.parse(_MOMENT)
    return date
