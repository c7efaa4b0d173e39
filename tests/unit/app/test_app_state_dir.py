"""The folder of an instance: one daemon at a time, and whoever looks is in nobody's way."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moxwell.app.state_dir import Home
from moxwell.errors import Busy


def home(folder: Path) -> Home:
    return Home("one", {"XDG_STATE_HOME": str(folder)})


def end(where: Home) -> None:
    """As its process ends: the lock goes."""
    assert where._held is not None
    where._held.close()


@contextmanager
def looked_at(where: Home, times: int = 4) -> Iterator[None]:
    """Commands that ask all the time whether a daemon lives."""
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            where.is_held()

    threads = [threading.Thread(target=look) for _ in range(times)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_second_daemon_is_refused_and_the_lock_goes_with_the_first(tmp_path: Path) -> None:
    first, second = home(tmp_path), home(tmp_path)
    assert not first.is_held()
    first.hold()
    assert second.is_held()
    with pytest.raises(Busy, match="running already"):
        second.hold()
    end(first)
    second.hold()
    assert first.is_held()
    end(second)


def test_whoever_looks_keeps_no_daemon_from_starting(tmp_path: Path) -> None:
    with looked_at(home(tmp_path)):
        for _ in range(50):
            daemon = home(tmp_path)
            daemon.hold()
            assert home(tmp_path).is_held()
            end(daemon)
