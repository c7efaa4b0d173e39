"""Staging with files as disks: format once, encrypt, refuse other devices."""

from pathlib import Path

import pytest

from moxwell.csi.errors import DeviceMismatch
from moxwell.csi.ids import VolumeId
from moxwell.csi.mounter import WrongKey
from moxwell.csi.staging import Stager, StageRequest
from moxwell.errors import Invalid
from moxwell.testing.csi_files import FileMounter, OneDisk
from moxwell.testing.loop import LoopClock, run_virtual

VOLUME = VolumeId("r", "", "s", "vm-9999-pvc-1")


@pytest.fixture
def stager(tmp_path: Path) -> Stager:
    (tmp_path / "disk").write_bytes(bytes(1 << 20))
    return Stager(OneDisk(tmp_path / "disk", VOLUME), FileMounter(), LoopClock())


def staging(folder: Path, **more: object) -> StageRequest:
    return StageRequest(str(VOLUME), str(folder / "at"), **more)  # type: ignore[arg-type]


def test_only_the_right_passphrase_unlocks_a_volume(stager: Stager, tmp_path: Path) -> None:
    async def story() -> None:
        await stager.stage(staging(tmp_path, key=b"right"))
        await stager.unstage(str(VOLUME), str(tmp_path / "at"))
        await stager.stage(staging(tmp_path, key=b"right"))
        await stager.unstage(str(VOLUME), str(tmp_path / "at"))
        with pytest.raises(WrongKey):
            await stager.stage(staging(tmp_path, key=b"wrong"))
        with pytest.raises(Invalid, match="encrypted"):
            await stager.stage(staging(tmp_path))

    run_virtual(story())


def test_a_disk_with_data_is_never_formatted(stager: Stager, tmp_path: Path) -> None:
    async def story() -> None:
        await stager.stage(staging(tmp_path))
        await stager.unstage(str(VOLUME), str(tmp_path / "at"))
        with pytest.raises(DeviceMismatch, match="contains ext4"):
            await stager.stage(staging(tmp_path, kind="xfs"))
        with pytest.raises(DeviceMismatch, match="not encrypted"):
            await stager.stage(staging(tmp_path, key=b"k"))

    run_virtual(story())


def test_the_passphrase_is_not_in_the_repr() -> None:
    assert "hidden" not in repr(StageRequest(str(VOLUME), "/x", key=b"hidden"))
