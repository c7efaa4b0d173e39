"""
kill -9 during compaction, backup, restore and repair: no object is lost and the file starts.

Each operation runs in a forked process that kills itself before its Nth effect: an SQL statement, a
file that is opened, renamed, linked or removed. N runs over the whole operation.
"""

import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from moxwell.embedded.apiserver.revision_log import LoadedLog, RevisionLog
from moxwell.embedded.apiserver.storage import backup, repair, restore
from moxwell.embedded.apiserver.storage.rows import LogRow
from moxwell.embedded.apiserver.storage.settings import StorageSettings

STAMP, LATER = "20260101T000000Z", "20260102T000000Z"
EFFECTS = ("open", "os.rename", "os.link", "os.remove", "sqlite3.connect")
POINTS = 30
Operation = Callable[[Path, Callable[[int], None]], None]


def commit_and(
    folder: Path, ack: Callable[[int], None], work: Callable[[RevisionLog], None]
) -> None:
    log = RevisionLog(folder / "db", StorageSettings())
    last = log.load(LATER).revision
    for number in range(last + 1, last + 9):
        log.commit([LogRow(number, "configmaps", f"default/n{number % 3}", False, b"%d" % number)])
        ack(number)
        work(log)
    log.close()


def do_compact(folder: Path, ack: Callable[[int], None]) -> None:
    commit_and(folder, ack, lambda log: log.compact_all())


def do_backup(folder: Path, ack: Callable[[int], None]) -> None:
    def work(log: RevisionLog) -> None:
        partial = backup.partial_path(folder / "backups")
        log.backup(partial, lambda: None)
        backup.complete(partial, datetime(2026, 1, 3, tzinfo=UTC))

    commit_and(folder, ack, work)


def do_restore(folder: Path, ack: Callable[[int], None]) -> None:
    restore.restore(folder / "saved.db", folder / "db", LATER)
    ack(0)


def do_repair(folder: Path, ack: Callable[[int], None]) -> None:
    repair.repair(folder / "db", LATER)
    ack(0)


class _Killer:
    """Kills this process before the effect with a number; counts effects."""

    def __init__(self, after: int) -> None:
        self._left = after
        self.count = 0

    def effect(self, *_: object) -> None:
        self.count += 1
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        connect = sqlite3.connect

        def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            made: sqlite3.Connection = connect(*args, **kwargs)
            made.set_trace_callback(self.effect)
            return made

        sqlite3.connect = traced  # type: ignore[assignment]
        sys.addaudithook(lambda event, _: self.effect() if event in EFFECTS else None)


def run_killed(operation: Operation, folder: Path, after: int) -> tuple[bool, list[int], int]:
    """Run in a fork; returns whether it ended by itself, what it acknowledged, its effects."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        killer = _Killer(after)
        killer.install()
        try:
            operation(folder, lambda number: void(os.write(writing, b"%d\n" % number)))
            os.write(writing, b"%d\n" % -killer.count)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        numbers = [int(line) for line in file.read().split()]
    os.waitpid(pid, 0)
    ended = bool(numbers) and numbers[-1] < 0
    return ended, [n for n in numbers if n >= 0], -numbers[-1] if ended else 0


def void(_: object) -> None:
    """Drop a value."""


def opened(path: Path) -> LoadedLog:
    log = RevisionLog(path, StorageSettings())
    try:
        return log.load(STAMP)
    finally:
        log.close()


def objects(loaded: LoadedLog) -> dict[str, bytes]:
    return {row.key: row.body for row in restore.current_rows(loaded.rows)}


def write_database(folder: Path, rows: range, body: bytes) -> None:
    log = RevisionLog(folder / "db", StorageSettings())
    log.load(STAMP)
    for number in rows:
        log.commit([LogRow(number, "configmaps", f"default/c{number % 20}", False, body)])
    log.close()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database, and a backup of its earlier state."""
    folder = tmp_path_factory.mktemp("prepared")
    write_database(folder, range(2, 42), b"old")
    log = RevisionLog(folder / "db", StorageSettings())
    log.load(STAMP)
    log.backup(folder / "saved.db", lambda: None)
    log.close()
    write_database(folder, range(42, 62), b"new")
    return folder


def points(operation: Operation, prepared: Path, tmp_path: Path) -> list[int]:
    """Numbers of effects, spread over the whole operation."""
    shutil.copytree(prepared, tmp_path / "whole")
    ended, _, total = run_killed(operation, tmp_path / "whole", 1_000_000)
    assert ended
    assert total > 5
    return sorted({total * n // POINTS for n in range(POINTS)})


@pytest.mark.parametrize("operation", [do_compact, do_backup])
def test_acknowledged_writes_survive(operation: Operation, prepared: Path, tmp_path: Path) -> None:
    old = {f"default/c{n}": b"new" for n in range(20)}
    for after in points(operation, prepared, tmp_path):
        folder = tmp_path / str(after)
        shutil.copytree(prepared, folder)
        ended, acked, _ = run_killed(operation, folder, after)
        assert not ended
        loaded = opened(folder / "db")
        assert not loaded.rebuilt
        found = objects(loaded)
        assert {k: v for k, v in found.items() if k in old} == old
        assert loaded.revision - max([61, *acked]) in (0, 1)  # at most the write in flight
        for made in backup.list_backups(folder / "backups"):
            backup.verify(made.path)


def test_a_killed_restore_leaves_the_old_database_or_the_new(
    prepared: Path, tmp_path: Path
) -> None:
    outcomes = set()
    for after in points(do_restore, prepared, tmp_path):
        folder = tmp_path / str(after)
        shutil.copytree(prepared, folder)
        run_killed(do_restore, folder, after)
        loaded = opened(folder / "db")
        assert not loaded.rebuilt
        (content,) = set(objects(loaded).values())
        outcomes.add(content)
        assert len(objects(loaded)) == 20
        assert (content == b"old") == (loaded.revision > restore.BUMP)
    assert outcomes == {b"old", b"new"}


def test_a_killed_repair_can_be_repeated(prepared: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(prepared, damaged)
    db = sqlite3.connect(damaged / "db")
    with db:
        db.execute("UPDATE log SET body = x'00' WHERE revision = 61")
    db.close()
    for after in points(do_repair, damaged, tmp_path):
        folder = tmp_path / str(after)
        shutil.copytree(damaged, folder)
        run_killed(do_repair, folder, after)
        repair.repair(folder / "db", "20260103T000000Z")
        assert objects(opened(folder / "db")) == {
            f"default/c{n}": b"new" for n in range(20) if n != 1
        }
        kept = sorted(folder.glob("db.old-*"))
        assert kept
        assert b"new" in kept[0].read_bytes()
