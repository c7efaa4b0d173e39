"""
The durable revision log in SQLite: one row per change; the row number is the resource version.

:mod:`moxwell.embedded.apiserver.commits` writes batches on its writer thread; each batch is one
transaction, synced before ``commit`` returns. A deletion is a row with the last state, so that
watches see it after a restart. Compaction drops old rows that newer old rows supersede: the last
state of every key and the recent history remain. Bodies are bytes of any content.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from moxwell.embedded.apiserver.storage import (
    acknowledged,
    backup,
    compaction,
    new_file,
    offline,
    replacement,
    schema,
    tables,
    wal,
)
from moxwell.embedded.apiserver.storage.acknowledged import AcknowledgedFile
from moxwell.embedded.apiserver.storage.compaction import HistoryMark, HistoryWindow
from moxwell.embedded.apiserver.storage.errors import DatabaseDamaged, DiskFailed
from moxwell.embedded.apiserver.storage.rows import LogDigest, LogRow, RowName, checksum, name_of
from moxwell.embedded.apiserver.storage.settings import StorageSettings
from moxwell.embedded.apiserver.storage.tables import TableContent

EXPENDABLE = ("events", "leases.coordination.k8s.io")  # their writers create them again
COMPACTION_STEP = 2_000  # revisions per transaction, so that commits do not wait long
_REPAIR = "run `moxwell repair`, or restore a backup with `moxwell restore`"


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """The content of the log at the start."""

    rows: tuple[LogRow, ...]
    floor: int
    unreadable: tuple[RowName, ...] = ()  # current objects whose row is damaged
    lost: tuple[RowName, ...] = ()  # objects that a repair gave up
    rebuilt: str = ""  # why the file was written anew

    @property
    def revision(self) -> int:
        """The last revision that was ever given out, as far as it is known."""
        last = self.rows[-1].revision if self.rows else 0
        return max(last, self.floor, *(n.revision for n in self.unreadable), 0)


@dataclass(frozen=True, slots=True)
class LogUsage:
    """The size of the file, and whether writes are refused."""

    used_bytes: int = 0
    file_bytes: int = 0
    quota_bytes: int = 0
    history_bytes: int = 0
    floor: int = 0
    alarm: bool = False


class RevisionLog:
    """The SQLite file; one thread at a time uses it."""

    def __init__(
        self, path: Path, settings: StorageSettings, *, max_pages: int | None = None
    ) -> None:
        self.path, self._settings, self._max_pages = path, settings, max_pages
        self._digest, self._floor, self._last = LogDigest(), 0, 0
        self._marks: tuple[HistoryMark, ...] = ()
        self._window = HistoryWindow()
        self.usage = LogUsage(quota_bytes=settings.quota_bytes)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replacement.finish(path)
        if wal.check(path):  # opening the file would drop what a repair may read
            acknowledged.check(path, offline.read_copy(path).last_revision())
        path.touch(mode=0o600, exist_ok=True)
        self._db = self._open()
        self._acknowledged = AcknowledgedFile(path)

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=1)
        try:
            self._prepare(db)
        except sqlite3.Error as error:
            db.close()
            raise self._unusable(error) from error
        except DiskFailed:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        run = db.execute
        run("PRAGMA locking_mode=EXCLUSIVE")  # first, so that a full disk needs no journal file
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=FULL")
        run("PRAGMA secure_delete=ON")  # pages that are free hold no rows that repair could find
        if self._max_pages is not None:
            run(f"PRAGMA max_page_count={self._max_pages:d}")
        schema.prepare(db)

    def _unusable(self, error: sqlite3.Error) -> DiskFailed:
        kind = getattr(error, "sqlite_errorname", "")
        text = f"the database {self.path} cannot be used: {error}"
        if kind.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR")):
            return DatabaseDamaged(f"{text}: {_REPAIR}")
        return DiskFailed(text)

    # Start

    def load(self, stamp: str) -> LoadedLog:
        """
        Read and verify all rows, oldest first.

        A damaged file is written anew from its readable rows and kept under another name with the
        ``stamp``; the objects whose rows are damaged are named. DatabaseDamaged if they cannot be.
        """
        try:
            found = tables.read(self._db)
            acknowledged.check(self.path, found.last_revision())
            if not found.is_healthy():
                return self._start_with(*self._rebuild(found, stamp))
            return self._start_with(found, _stored(found))
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _rebuild(self, found: TableContent, stamp: str) -> tuple[TableContent, LoadedLog]:
        missing = found.missing()
        why = "; ".join(found.problems[:3]) or "rows are missing"
        if missing is None:
            raise DatabaseDamaged(
                f"the database {self.path} is damaged ({why}), and what is lost cannot be named: "
                f"{_REPAIR}"
            )
        known = _stored(found)
        unreadable = [
            name
            for name in tables.unreadable_objects(found, (*known.unreadable, *missing))
            if name.group_resource not in EXPENDABLE
        ]
        floor = max([known.floor, *(name.revision for name in missing)])
        new = self.path.with_name(f".{self.path.name}.rebuilt")
        new_file.write(
            new,
            known.rows,
            floor=floor,
            values=found.values,
            unreadable=unreadable,
            lost=known.lost,
        )
        self._db.close()
        replacement.stage(self.path, new, stamp)
        self._db = self._open()
        found = tables.read(self._db)
        return found, replace(_stored(found), rebuilt=why)

    def _start_with(self, found: TableContent, loaded: LoadedLog) -> LoadedLog:
        assert found.digest is not None
        self._digest, self._floor, self._last = found.digest, loaded.floor, loaded.revision
        stored = found.values.get(schema.MARKS)
        if stored is not None:
            self._marks = msgspec.json.decode(stored, type=tuple[HistoryMark, ...])
        self._window.add((r.revision, len(r.body)) for r in loaded.rows if r.revision > self._floor)
        self._measure()
        return loaded

    # Writes

    def commit(self, rows: Sequence[LogRow]) -> None:
        """Commit rows in one transaction; durable when it returns."""
        digest = self._digest
        sums = [checksum(row) for row in rows]
        for row, made in zip(rows, sums, strict=True):
            digest = digest.add(name_of(row), made)
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(
                "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)",
                [(*row, made) for row, made in zip(rows, sums, strict=True)],
            )
            schema.put_value(self._db, schema.DIGEST, digest.encode())
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise new_file.write_error(error, self.path) from error
        self._digest, self._last = digest, rows[-1].revision
        self._acknowledged.write(self._last)
        self._window.add((row.revision, len(row.body)) for row in rows)
        self._after_commit()

    def _after_commit(self) -> None:
        """Compact a history that is too large, and measure the file."""
        self._compact(self._window.choose_floor(self._settings.history_bytes))
        self._measure()
        if self.usage.used_bytes > self._settings.quota_bytes or self.usage.alarm:
            self._compact(self._last)
            self._measure()

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _measure(self) -> None:
        pages, free, size = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        used, quota = (pages - free) * size, self._settings.quota_bytes
        self.usage = LogUsage(
            used_bytes=used,
            file_bytes=pages * size,
            quota_bytes=quota,
            history_bytes=self._window.bytes,
            floor=self._floor,
            alarm=compaction.next_alarm(self.usage.alarm, used=used, quota=quota),
        )

    # Compaction

    def compact_old(self, now: float) -> None:
        """Mark the current revision, and compact the history that is older than its limit."""
        keep = self._settings.history.total_seconds()
        marks, floor = compaction.advance(self._marks, self._last, now, keep)
        if marks != self._marks and self._put(schema.MARKS, msgspec.json.encode(marks)):
            self._marks = marks
        self._compact(floor)
        self._measure()

    def compact_all(self) -> None:
        """Compact the whole history."""
        self._compact(self._last)
        self._measure()

    def backup(self, target: Path, between: Callable[[], None]) -> None:
        """Copy the database to a new file; ``between`` runs other jobs between the steps."""
        try:
            backup.copy(self._db, target, between)
        except sqlite3.Error as error:
            raise new_file.write_error(error, target) from error

    def accept_losses(self) -> None:
        """Forget the objects that a repair gave up; their dependents are garbage from now on."""
        self._put(schema.LOST, b"[]")

    def _put(self, name: str, value: bytes) -> bool:
        try:
            schema.put_value(self._db, name, value)
        except sqlite3.Error:  # for example a full disk; the next call writes it
            return False
        return True

    def _compact(self, floor: int) -> None:
        """Drop rows superseded up to ``floor`` and deletions up to it, step by step."""
        while self._floor < floor:
            if not self._compact_step(min(floor, self._floor + COMPACTION_STEP)):
                return

    def _compact_step(self, floor: int) -> bool:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            superseded = self._superseded(floor)
            digest = self._digest
            for name, made in superseded:
                digest = digest.remove(name, made)
            self._db.executemany(
                "DELETE FROM log WHERE revision = ?", [(n.revision,) for n, _ in superseded]
            )
            schema.put_value(self._db, schema.FLOOR, str(floor).encode())
            schema.put_value(self._db, schema.DIGEST, digest.encode())
            self._db.execute("COMMIT")
        except sqlite3.Error:  # for example on a full disk; retried
            self._roll_back()
            return False
        self._digest, self._floor = digest, floor
        self._window.drop(floor)
        return True

    def _superseded(self, floor: int) -> list[tuple[RowName, int]]:
        """The rows up to ``floor`` that only the history needs, with their checksums."""
        rows = self._db.execute(
            "SELECT o.store, o.key, o.revision, o.checksum FROM log n"
            " JOIN log o ON o.store = n.store AND o.key = n.key AND o.revision < n.revision"
            " WHERE n.revision > ?1 AND n.revision <= ?2"
            " UNION SELECT store, key, revision, checksum FROM log"
            " WHERE revision > ?1 AND revision <= ?2 AND deleted = 1",
            (self._floor, floor),
        )
        return [(RowName(store, key, revision), made) for store, key, revision, made in rows]

    def close(self) -> None:
        self._db.close()
        self._acknowledged.close()


def _stored(found: TableContent) -> LoadedLog:
    return LoadedLog(
        found.sorted_rows(),
        found.floor,
        unreadable=schema.decode_names(found.values[schema.UNREADABLE]),
        lost=schema.decode_names(found.values[schema.LOST]),
    )
