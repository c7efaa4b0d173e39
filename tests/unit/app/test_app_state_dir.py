"""The state directory: one daemon at a time, readers do not block it, old names are read."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from moxwell.app.state_dir import StateDir, decode_info
from moxwell.errors import Busy


def state(folder: Path) -> StateDir:
    return StateDir("one", {"XDG_STATE_HOME": str(folder)})


@contextmanager
def looked_at(where: StateDir, times: int = 4) -> Iterator[None]:
    """Commands that check all the time whether a daemon runs."""
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            where.is_locked()

    threads = [threading.Thread(target=look) for _ in range(times)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_second_daemon_is_refused_until_the_first_releases_the_lock(tmp_path: Path) -> None:
    first, second = state(tmp_path), state(tmp_path)
    assert not first.is_locked()
    first.acquire()
    assert second.is_locked()
    with pytest.raises(Busy, match="running already"):
        second.acquire()
    first.release()
    second.acquire()
    assert first.is_locked()
    second.release()


def test_readers_do_not_prevent_a_daemon_from_starting(tmp_path: Path) -> None:
    with looked_at(state(tmp_path)):
        for _ in range(50):
            daemon = state(tmp_path)
            daemon.acquire()
            assert state(tmp_path).is_locked()
            daemon.release()


def test_folders_of_an_earlier_version_get_their_new_names(tmp_path: Path) -> None:
    one = state(tmp_path)
    for old in ("planes", "genuine", "machine-planes"):
        (one.folder / old).mkdir(parents=True)
        (one.folder / old / "file").write_text(old)
    one.acquire()
    assert (one.control_planes / "file").read_text() == "planes"
    assert (one.control_plane_binaries / "file").read_text() == "genuine"
    assert (one.machine_control_planes / "file").read_text() == "machine-planes"
    one.release()


@pytest.mark.parametrize("key", ["genuine", "control_plane_binaries"])
def test_the_info_of_a_running_daemon_of_an_earlier_version_is_read(key: str) -> None:
    texts = ("name", "mode", "version", "api", "dashboard", "metrics", "started")
    tree = {**dict.fromkeys(texts, "x"), "pid": 1, key: "installed"}
    assert decode_info(msgspec.json.encode(tree)).control_plane_binaries == "installed"
