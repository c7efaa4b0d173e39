"""What an instance writes is for its owner's eyes."""

import os
import stat
from pathlib import Path

import pytest

from moxwell.app.state_dir import write_whole


@pytest.mark.parametrize("before", [None, 0o644], ids=["a new file", "one that others could read"])
def test_a_file_written_whole_is_its_owners(tmp_path: Path, before: int | None) -> None:
    file = tmp_path / "facts.json"
    if before is not None:
        file.touch(mode=before)
    write_whole(file, b"{}")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_bytes() == b"{}"


def test_a_draft_of_somebody_killed_is_no_hindrance(tmp_path: Path) -> None:
    draft = tmp_path / f".facts.json.{os.getpid()}"
    draft.touch(mode=0o644)
    write_whole(tmp_path / "facts.json", b"{}")
    assert [p.name for p in tmp_path.iterdir()] == ["facts.json"]
    assert stat.S_IMODE((tmp_path / "facts.json").stat().st_mode) == 0o600
