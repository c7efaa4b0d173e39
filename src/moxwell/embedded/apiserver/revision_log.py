"""
The durable revision log in SQLite: one row per change; the row number is the resource version.

:mod:`moxwell.embedded.apiserver.commits` writes batches on its writer thread; each batch is one
transaction, synced before ``commit`` returns. A deletion is a row with the last state, so that
watches see it after a restart. Compaction drops old rows that newer old rows supersede: the last
state of every key and the recent history remain.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from moxwell.errors import Busy, Terminal

SCHEMA = """
CREATE TABLE IF NOT EXISTS log (
    revision INTEGER PRIMARY KEY,
    store TEXT NOT NULL,
    key TEXT NOT NULL,
    deleted INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS log_by_key ON log (store, key, revision);
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
"""
FORMAT = b"1"


class DiskFull(Busy):
    """The disk is full; the transaction was rolled back and only its writes are lost."""

    reason = "StorageFull"


class DiskFailed(Terminal):
    """The disk failed and the outcome of the last transaction is unknown; writes stop."""

    reason = "StorageBroken"


class LogRow(NamedTuple):
    """A row of the log: one change of one object."""

    revision: int
    group_resource: str
    key: str
    deleted: bool
    body: bytes


class RevisionLog:
    """The SQLite file; one thread at a time uses it."""

    def __init__(self, path: Path, *, keep: int = 20_000, max_pages: int | None = None) -> None:
        self._keep, self._path = keep, path
        self._rows_since_compaction = 0
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600, exist_ok=True)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1)
        try:
            self._prepare(max_pages)
        except sqlite3.Error as error:
            self._db.close()
            raise DiskFailed(f"the database {path} cannot be used: {error}") from error

    def _prepare(self, max_pages: int | None) -> None:
        run = self._db.execute
        run("PRAGMA locking_mode=EXCLUSIVE")  # first, so that a full disk needs no journal file
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=FULL")
        if max_pages is not None:
            run(f"PRAGMA max_page_count={max_pages:d}")
        self._db.executescript(SCHEMA)
        found = self.get_or_set("format", FORMAT)
        if found != FORMAT:
            raise DiskFailed(f"the database has format {found!r}, this program knows {FORMAT!r}")

    def get_or_set(self, name: str, default: bytes) -> bytes:
        """Return a named value beside the log; set it to ``default`` if it is missing."""
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        if row is not None:
            return bytes(row[0])
        self._db.execute("INSERT INTO meta VALUES (?, ?)", (name, default))
        return default

    def read(self) -> Iterator[LogRow]:
        """Read all rows, oldest first."""
        rows = self._db.execute(
            "SELECT revision, store, key, deleted, body FROM log ORDER BY revision"
        )
        for revision, group_resource, key, deleted, body in rows:
            yield LogRow(revision, group_resource, key, bool(deleted), body)

    def floor(self) -> int:
        """Return the revision up to which changes may be compacted."""
        return int(self.get_or_set("floor", b"0"))

    def commit(self, rows: Sequence[LogRow]) -> None:
        """Commit rows in one transaction; durable when it returns."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?)", rows)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back(error)
        self._rows_since_compaction += len(rows)
        if self._rows_since_compaction > self._keep // 2:
            self._compact(rows[-1].revision - self._keep)

    def _roll_back(self, error: sqlite3.Error) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL":
            folder = self._path.parent
            text = f"the disk is full; free space on the file system of {folder} and retry"
            raise DiskFull(text) from error
        raise DiskFailed(f"the database failed: {error}") from error

    def _compact(self, floor: int) -> None:
        """Drop rows superseded below ``floor`` and deletions below it."""
        self._rows_since_compaction = 0
        if floor <= 0:
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(
                "DELETE FROM log WHERE revision <= ?1 AND (deleted = 1 OR revision < ("
                "SELECT max(n.revision) FROM log n WHERE n.store = log.store AND n.key = log.key"
                " AND n.revision <= ?1))",
                (floor,),
            )
            self._db.execute(
                "INSERT OR REPLACE INTO meta VALUES ('floor', ?)", (str(floor).encode(),)
            )
            self._db.execute("COMMIT")
        except sqlite3.Error:
            if self._db.in_transaction:  # for example on a full disk; retried
                self._db.execute("ROLLBACK")

    def close(self) -> None:
        self._db.close()
