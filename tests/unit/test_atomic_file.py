"""Files that are replaced in one step, for their owner only."""

import os
import stat
from pathlib import Path

import pytest

from moxwell.atomic_file import write_private


@pytest.mark.parametrize("before", [None, 0o644], ids=["a new file", "a file others could read"])
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "not durable"])
def test_a_written_file_is_private(tmp_path: Path, before: int | None, durable: bool) -> None:
    file = tmp_path / "facts.json"
    if before is not None:
        file.touch(mode=before)
    write_private(file, b"{}", durable=durable)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_bytes() == b"{}"


def test_a_temporary_file_of_a_killed_process_does_not_matter(tmp_path: Path) -> None:
    temporary = tmp_path / f".facts.json.{os.getpid()}"
    temporary.touch(mode=0o644)
    write_private(tmp_path / "facts.json", b"{}")
    assert [p.name for p in tmp_path.iterdir()] == ["facts.json"]
    assert stat.S_IMODE((tmp_path / "facts.json").stat().st_mode) == 0o600


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.mkdir()  # cannot be replaced by a file
    with pytest.raises(OSError, match="data"):
        write_private(file, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


def test_missing_folders_are_created_private(tmp_path: Path) -> None:
    write_private(tmp_path / "a" / "b", b"x")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
