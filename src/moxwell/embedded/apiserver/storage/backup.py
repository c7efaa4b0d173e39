"""
Backups of a database file: SQLite files with the time and the revision in their names.

A backup is copied with SQLite's backup API by the process that owns the database, verified row by
row, synced, and only then given its name. A file with a backup's name is therefore complete.
"""

import os
import re
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from moxwell.embedded.apiserver.storage import tables
from moxwell.embedded.apiserver.storage.errors import InvalidBackup
from moxwell.embedded.apiserver.storage.settings import Retention
from moxwell.embedded.apiserver.storage.tables import TableContent

PAGES_PER_STEP = 256
_TIME = "%Y%m%dT%H%M%SZ"
_NAME = re.compile(r"^(\d{8}T\d{6}Z)-r(\d+)\.db$")


@dataclass(frozen=True, slots=True)
class BackupFile:
    """A complete backup."""

    path: Path
    made: datetime
    revision: int


def stamp_of(now: datetime) -> str:
    """The time as it is used in file names."""
    return now.astimezone(UTC).strftime(_TIME)


def list_backups(folder: Path) -> tuple[BackupFile, ...]:
    """The backups of a folder, oldest first."""
    found = []
    for path in folder.glob("*.db") if folder.exists() else ():
        if (named := _NAME.match(path.name)) is not None:
            made = datetime.strptime(named[1], _TIME).replace(tzinfo=UTC)
            found.append(BackupFile(path, made, int(named[2])))
    return tuple(sorted(found, key=lambda b: (b.made, b.revision)))


def partial_path(folder: Path) -> Path:
    return folder / ".partial.db"


def copy(db: sqlite3.Connection, target: Path, between: Callable[[], None]) -> None:
    """Copy an open database to a new file; ``between`` is called after each step."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    target.unlink(missing_ok=True)
    os.close(os.open(target, os.O_CREAT | os.O_EXCL, 0o600))
    copied = sqlite3.connect(target, isolation_level=None)
    try:
        db.backup(copied, pages=PAGES_PER_STEP, progress=lambda *_: between())
        copied.execute("PRAGMA journal_mode=DELETE")  # one file, without a write-ahead log
    finally:
        copied.close()


def complete(partial: Path, now: datetime) -> BackupFile:
    """Verify a copy, sync it and give it its name."""
    content = verify(partial)
    revision = max(content.floor, max(content.rows, default=0))
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    path = partial.with_name(f"{stamp_of(now)}-r{revision}.db")
    partial.replace(path)
    return BackupFile(path, now, revision)


def verify(path: Path) -> TableContent:
    """Read a backup and verify every row; raises InvalidBackup."""
    if not path.is_file():
        raise InvalidBackup(f"{path} is not a file: name a backup file")
    try:
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            content = tables.read(db)
        finally:
            db.close()
    except sqlite3.Error as error:
        raise InvalidBackup(f"{path} is not a backup: {error}") from error
    if not content.is_healthy():
        why = "; ".join(content.problems[:3]) or "rows are missing"
        raise InvalidBackup(f"{path} is not a complete backup ({why}): use another one")
    return content


def is_due(
    backups: Iterable[BackupFile], *, revision: int, now: datetime, every: timedelta
) -> bool:
    """Whether a backup is made now: the interval is over and something changed."""
    newest = max(backups, key=lambda b: b.made, default=None)
    if newest is None:
        return every > timedelta(0)
    elapsed = abs(now - newest.made)  # a clock that was set back does not stop backups
    return timedelta(0) < every <= elapsed and newest.revision != revision


def choose_expired(backups: Iterable[BackupFile], retention: Retention) -> tuple[BackupFile, ...]:
    """The backups that the retention does not keep; the newest is always kept."""
    newest_first = sorted(backups, key=lambda b: (b.made, b.revision), reverse=True)
    kept = set(newest_first[: max(retention.latest, 1)])
    days: dict[object, BackupFile] = {}
    weeks: dict[object, BackupFile] = {}
    for backup in newest_first:
        days.setdefault(backup.made.date(), backup)
        weeks.setdefault(backup.made.isocalendar()[:2], backup)
    kept.update(list(days.values())[: retention.days])
    kept.update(list(weeks.values())[: retention.weeks])
    return tuple(b for b in newest_first if b not in kept)


def delete_expired(folder: Path, retention: Retention) -> None:
    for old in choose_expired(list_backups(folder), retention):
        old.path.unlink(missing_ok=True)
