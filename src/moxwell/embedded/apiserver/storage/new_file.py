"""Writes rows and values to a new database file: for salvage, restore and repair."""

import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from moxwell.embedded.apiserver.storage import schema
from moxwell.embedded.apiserver.storage.errors import DiskFailed, DiskFull
from moxwell.embedded.apiserver.storage.rows import LogDigest, LogRow, RowName, name_of

INSTANCE_VALUES = (schema.DIGEST, schema.FLOOR, schema.MARKS, schema.UNREADABLE, schema.LOST)


def write(
    path: Path,
    rows: Iterable[LogRow],
    *,
    floor: int,
    values: Mapping[str, bytes],
    unreadable: Sequence[RowName] = (),
    lost: Sequence[RowName] = (),
) -> None:
    """Write a complete file, which is on disk when this returns; replaces what is there."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode=OFF")  # the file counts only after this returns
        schema.prepare(db)
        db.execute("BEGIN IMMEDIATE")
        _insert(db, rows)
        for name, value in values.items():
            if name not in INSTANCE_VALUES:
                schema.put_value(db, name, value)
        schema.put_value(db, schema.FLOOR, str(floor).encode())
        schema.put_value(db, schema.UNREADABLE, schema.encode_names(unreadable))
        schema.put_value(db, schema.LOST, schema.encode_names(lost))
        db.execute("COMMIT")
    except sqlite3.Error as error:
        raise write_error(error, path) from error
    finally:
        db.close()


def _insert(db: sqlite3.Connection, rows: Iterable[LogRow]) -> None:
    digest = LogDigest()
    for row in rows:
        digest = digest.add(name_of(row), schema.insert(db, row))
    schema.put_value(db, schema.DIGEST, digest.encode())


def write_error(error: sqlite3.Error, path: Path) -> DiskFull | DiskFailed:
    """Distinguish a full disk from a failed one."""
    if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL":
        folder = path.parent
        return DiskFull(f"the disk is full; free space on the file system of {folder} and retry")
    return DiskFailed(f"the database failed: {error}")
