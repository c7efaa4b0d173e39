"""Reads images that real kernels read, also those that a strict reader rejects."""

import io
import struct

import pytest
from pycdlib import PyCdlib

from moxwell.bootstrap.iso import build_iso
from moxwell.errors import Invalid
from moxwell.lab.guests.config_drive import read_config_drive
from moxwell.lab.guests.iso_reader import read_iso

FILES = {"user-data": b"#cloud-config\n", "meta-data": b"local-hostname: w1\n"}
PRIMARY = 16 * 2048


def plain_image(joliet: int | None = None) -> bytes:
    """An image with ISO 9660 names, and Joliet names if asked."""
    disc = PyCdlib()
    disc.new(vol_ident="cidata", joliet=joliet)
    name = "/user-data" if joliet else None
    disc.add_fp(io.BytesIO(b"x"), 1, "/USER_DAT.;1", joliet_path=name)
    out = io.BytesIO()
    disc.write_fp(out)
    disc.close()
    return out.getvalue()


def as_go_diskfs(image: bytes) -> bytes:
    """Big-endian halves that disagree, and a label padded with NUL."""
    data = bytearray(image)
    data[PRIMARY + 40 : PRIMARY + 72] = b"cidata".ljust(32, b"\0")
    data[PRIMARY + 126 : PRIMARY + 128] = b"\0\0"
    root = struct.unpack_from("<I", data, PRIMARY + 158)[0] * 2048
    at = root
    while data[at]:
        data[at + 30 : at + 32] = b"\x7f\x7f"
        data[at + 6 : at + 10] = b"\0\0\0\0"
        at += data[at]
    return bytes(data)


def test_rock_ridge_names_are_read() -> None:
    assert read_iso(build_iso(FILES)) == ("cidata", FILES)


def test_big_endian_halves_and_the_padding_of_the_label_do_not_matter() -> None:
    image = as_go_diskfs(build_iso(FILES))
    with pytest.raises(Exception, match=r"disagree|endian|seqnum"):
        PyCdlib().open_fp(io.BytesIO(image))
    assert read_config_drive(image).hostname == "w1"


@pytest.mark.parametrize(
    "joliet, name",
    [
        pytest.param(None, "user_dat", id="ISO 9660 names become lower case without a version"),
        pytest.param(3, "user-data", id="Joliet names are used without Rock Ridge"),
    ],
)
def test_names_without_rock_ridge(joliet: int | None, name: str) -> None:
    assert read_iso(plain_image(joliet))[1] == {name: b"x"}


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(b"", id="empty"),
        pytest.param(bytes(64 * 2048), id="zeros"),
        pytest.param(build_iso(FILES)[: 20 * 2048], id="cut"),
    ],
)
def test_a_damaged_image_is_invalid(image: bytes) -> None:
    with pytest.raises(Invalid, match="not an ISO 9660 image"):
        read_iso(image)
