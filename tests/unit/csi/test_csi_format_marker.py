"""Interrupted formatting is resumed if the format marker allows it."""

import json
import struct
from pathlib import Path

import pytest

from moxwell.csi import format_marker
from moxwell.csi.errors import DeviceMismatch
from moxwell.csi.ids import VolumeId
from moxwell.csi.staging import Stager, StageRequest
from moxwell.testing.csi_files import NOISE, FileMounter, OneDisk
from moxwell.testing.loop import LoopClock, run_virtual

VOLUME = VolumeId("r", "", "s", "vm-9999-pvc-1")
SIZE = 32 << 20


def disk(folder: Path, size: int = SIZE) -> Path:
    file = folder / "disk"
    with file.open("wb") as made:
        made.truncate(size)
    return file


def put(file: Path, location: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(location)
        opened.write(data)


def text_of(file: Path) -> bytes:
    return file.read_bytes()


def xfs(making_it: int) -> bytes:
    return b"XFSB".ljust(126, b"\0") + bytes([making_it])


def ext4(mounted: int, mounts: int) -> bytes:
    head = bytearray(2048)
    head[1024 + 0x38 : 1024 + 0x3A] = b"\x53\xef"
    struct.pack_into("<I", head, 1024 + 0x2C, mounted)
    struct.pack_into("<H", head, 1024 + 0x34, mounts)
    return bytes(head)


def luks(text: bytes, version: int = 2, size: int = 16384) -> bytes:
    return (b"LUKS\xba\xbe" + struct.pack(">HQ", version, size)).ljust(4096, b"\0") + text


def keys(**slots: object) -> bytes:
    return json.dumps({"keyslots": slots}).encode()


@pytest.mark.parametrize(
    ("kind", "head", "unused"),
    [
        pytest.param("", b"\7noise", True, id="what nobody knows"),
        pytest.param("xfs", xfs(1), True, id="an xfs in the making"),
        pytest.param("xfs", xfs(0), False, id="an xfs that is finished"),
        pytest.param("ext4", ext4(0, 0), True, id="an ext4 never mounted"),
        pytest.param("ext4", ext4(1700000000, 0), False, id="an ext4 mounted and checked since"),
        pytest.param("ext4", ext4(0, 3), False, id="an ext4 mounted by a clock that says 1970"),
        pytest.param("ext2", ext4(1700000000, 1), False, id="an ext2 that was mounted"),
        pytest.param("crypto_LUKS", luks(b""), True, id="a LUKS head before its text"),
        pytest.param("crypto_LUKS", luks(keys()), True, id="a LUKS head before its key"),
        pytest.param("crypto_LUKS", luks(keys(a={})), False, id="a LUKS head with a key"),
        pytest.param("crypto_LUKS", luks(b"{damaged"), False, id="a LUKS head with a damaged text"),
        pytest.param("crypto_LUKS", luks(b"[]"), False, id="a LUKS head with another text"),
        pytest.param("crypto_LUKS", luks(b"", 1), False, id="LUKS of the first version"),
        pytest.param("crypto_LUKS", luks(b"", 2, 7), False, id="a LUKS head of no sense"),
        pytest.param("btrfs", b"", False, id="a file system that we never make"),
        pytest.param("dos", b"", False, id="a partition table"),
    ],
)
def test_the_marker_alone_does_not_allow_formatting(
    tmp_path: Path, kind: str, head: bytes, unused: bool
) -> None:
    file = disk(tmp_path)
    put(file, 0, head)
    assert format_marker.is_unused(str(file), kind) is unused


@pytest.mark.parametrize("size", [1 << 20, (3 << 20) + 12288 + 4095, 4 << 20, SIZE])
def test_the_marker_is_written_and_cleared(tmp_path: Path, size: int) -> None:
    file = disk(tmp_path, size)
    format_marker.mark(str(file))
    assert format_marker.is_marked(str(file)) is (
        size >= format_marker.OFFSETS[0] + len(format_marker.MARK)
    )
    assert file.stat().st_size == size
    format_marker.clear(str(file))
    assert text_of(file) == bytes(size)


def test_only_exact_marker_blocks_are_cleared(tmp_path: Path) -> None:
    file = disk(tmp_path)
    format_marker.mark(str(file))
    put(file, format_marker.OFFSETS[0] + 4000, b"of a file system")
    format_marker.clear(str(file))
    rest = text_of(file)[format_marker.OFFSETS[0] :][: len(format_marker.MARK)]
    assert rest.startswith(b"moxwell:")
    assert b"of a file system" in rest
    assert not format_marker.is_marked(str(file))


class Killed(BaseException):
    """Simulates a killed process; a BaseException that nothing catches."""


class Dying(FileMounter):
    """A mounter that dies after a number of writes to the disk."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def _wrote(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed

    def mark(self, device: str) -> None:
        super().mark(device)
        self._wrote()

    def clear(self, device: str) -> None:
        super().clear(device)
        self._wrote()

    def set_head(self, device: str, text: str) -> None:
        super().set_head(device, text)
        self._wrote()


def stager(file: Path, mounter: FileMounter) -> Stager:
    return Stager(OneDisk(file, VOLUME), mounter, LoopClock())


def staging(folder: Path, key: bytes = b"") -> StageRequest:
    return StageRequest(str(VOLUME), str(folder / "at"), key=key)


def lives(file: Path, folder: Path, key: bytes, writes: tuple[int, ...]) -> int:
    """Run plugins that die after a number of writes; returns how many died."""
    for died, after in enumerate(writes):
        try:
            run_virtual(stager(file, Dying(after)).stage(staging(folder, key)))
        except Killed:
            continue
        return died
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("key", [b"", b"right"], ids=["plain", "encrypted"])
def test_formatting_is_resumed_after_a_kill_at_any_write(tmp_path: Path, key: bytes) -> None:
    counted = Dying(1000)
    (tmp_path / "plain").mkdir()
    run_virtual(stager(disk(tmp_path), counted).stage(staging(tmp_path / "plain", key)))
    writes = 1000 - counted.left
    assert writes >= 4
    for after in range(1, writes + 1):
        file = disk(tmp_path)
        assert lives(file, tmp_path, key, (after, 1000)) == 1, after
        assert not format_marker.is_marked(str(file))
        mounter = FileMounter()
        run_virtual(stager(file, mounter).stage(staging(tmp_path, key)))
        assert [m.target for m in mounter.mounts] == [str(tmp_path / "at")]


def test_unknown_content_without_marker_is_refused(tmp_path: Path) -> None:
    file = disk(tmp_path)
    put(file, 0, NOISE.encode())
    with pytest.raises(DeviceMismatch, match="its content is not recognised"):
        run_virtual(stager(file, FileMounter()).stage(staging(tmp_path)))
