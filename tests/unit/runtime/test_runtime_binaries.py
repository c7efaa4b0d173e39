"""Where programs of others are looked for."""

from pathlib import Path

import pytest

from moxwell.runtime.binaries import ProgramMissing, Programs


def put(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    path.chmod(mode)
    return path


def test_a_program_in_a_folder(tmp_path: Path) -> None:
    there = put(tmp_path / "etcd")
    assert Programs([tmp_path / "none", tmp_path]).find("etcd") == there


def test_the_first_folder_wins(tmp_path: Path) -> None:
    first, _ = put(tmp_path / "a" / "etcd"), put(tmp_path / "b" / "etcd")
    assert Programs([tmp_path / "a", tmp_path / "b"]).get("etcd") == first


def test_of_several_versions_the_newest(tmp_path: Path) -> None:
    put(tmp_path / "etcd-v3.6.9" / "etcd")
    newest = put(tmp_path / "etcd-v3.6.10" / "etcd")
    assert Programs([tmp_path]).find("etcd") == newest


def test_a_file_nobody_may_run_does_not_count(tmp_path: Path) -> None:
    put(tmp_path / "etcd", 0o644)
    assert Programs([tmp_path]).find("etcd") is None


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProgramMissing, match="kube-apiserver is not installed"):
        Programs([tmp_path]).get("kube-apiserver")
