"""
The tables of the database file and the values beside the log.

``user_version`` is the format. Format 1 had no checksums; it is converted in one transaction.
"""

import sqlite3
from collections.abc import Sequence

import msgspec

from moxwell.embedded.apiserver.storage.errors import DatabaseDamaged
from moxwell.embedded.apiserver.storage.rows import (
    LogDigest,
    LogRow,
    RowName,
    checksum,
    name_of,
    value_checksum,
)

FORMAT = 2
TABLES = """
CREATE TABLE log (
    revision INTEGER PRIMARY KEY,
    store TEXT NOT NULL,
    key TEXT NOT NULL,
    deleted INTEGER NOT NULL,
    body BLOB NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
CREATE INDEX log_by_key ON log (store, key, revision);
CREATE TABLE meta (
    name TEXT PRIMARY KEY, value BLOB NOT NULL, checksum INTEGER NOT NULL
) STRICT;
"""
_FROM_1 = """
DROP INDEX IF EXISTS log_by_key;
ALTER TABLE log RENAME TO log_1;
ALTER TABLE meta RENAME TO meta_1;
"""
DIGEST, FLOOR, MARKS, UNREADABLE, LOST = "digest", "floor", "marks", "unreadable", "lost"


def prepare(db: sqlite3.Connection) -> None:
    """Create the tables of a new file, or convert those of an earlier format."""
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if found == FORMAT:
        return
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}
    if found or ("log" in tables and not _is_format_1(db, tables)):
        raise DatabaseDamaged(
            f"the database has format {found}, this program knows {FORMAT}: use the version of "
            "Moxwell that wrote it; if it is this one, run `moxwell repair`"
        )
    with db:  # commits, or rolls back after an exception
        db.execute("BEGIN IMMEDIATE")
        if "log" in tables:
            _convert(db)
        else:
            _run(db, TABLES)
            put_value(db, DIGEST, LogDigest().encode())
        _put_missing(db)
        db.execute(f"PRAGMA user_version = {FORMAT}")


def _is_format_1(db: sqlite3.Connection, tables: set[str]) -> bool:
    if "meta" not in tables:
        return False
    found = db.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
    return found is not None and bytes(found[0]) == b"1"


def _put_missing(db: sqlite3.Connection) -> None:
    """Every file has these values, so that a missing one is a sign of damage."""
    for name, value in ((FLOOR, b"0"), (UNREADABLE, b"[]"), (LOST, b"[]")):
        if get_value(db, name) is None:
            put_value(db, name, value)


def _run(db: sqlite3.Connection, script: str) -> None:
    """Execute statements inside the open transaction, which executescript would commit."""
    for statement in script.split(";"):
        if statement.strip():
            db.execute(statement)


def _convert(db: sqlite3.Connection) -> None:
    _run(db, _FROM_1)
    _run(db, TABLES)
    digest = LogDigest()
    for found in db.execute("SELECT revision, store, key, deleted, body FROM log_1").fetchall():
        row = LogRow(*found)
        digest = digest.add(name_of(row), insert(db, row))
    for name, value in db.execute("SELECT name, value FROM meta_1").fetchall():
        if name != "format":
            put_value(db, name, bytes(value))
    put_value(db, DIGEST, digest.encode())
    _run(db, "DROP TABLE log_1; DROP TABLE meta_1")


def insert(db: sqlite3.Connection, row: LogRow) -> int:
    """Insert a row and return its checksum."""
    made = checksum(row)
    db.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)", (*row, made))
    return made


# Values beside the log


def get_value(db: sqlite3.Connection, name: str) -> bytes | None:
    """Return a named value; None if it is missing. Raises ValueError if it is damaged."""
    row = db.execute(
        "SELECT CAST(value AS BLOB), CAST(checksum AS INTEGER) FROM meta WHERE name = ?", (name,)
    ).fetchone()
    if row is None:
        return None
    if value_checksum(name, row[0] or b"") != row[1]:
        raise ValueError(f"the value {name!r} of the database is damaged")
    return bytes(row[0])


def put_value(db: sqlite3.Connection, name: str, value: bytes) -> None:
    made = value_checksum(name, value)
    changed = db.execute(
        "UPDATE meta SET value = ?, checksum = ? WHERE name = ?", (value, made, name)
    )
    if changed.rowcount == 0:
        db.execute("INSERT INTO meta VALUES (?, ?, ?)", (name, value, made))


def decode_names(value: bytes) -> tuple[RowName, ...]:
    """Decode a stored list of rows."""
    return msgspec.json.decode(value, type=tuple[RowName, ...])


def encode_names(rows: Sequence[RowName]) -> bytes:
    return msgspec.json.encode(rows)
