"""Reads the tables of a database that nothing has open, from a copy: opening changes its files."""

import shutil
import sqlite3
import tempfile
from pathlib import Path

from moxwell.embedded.apiserver.storage import replacement, schema, tables
from moxwell.embedded.apiserver.storage.errors import DatabaseDamaged, DiskFull
from moxwell.embedded.apiserver.storage.tables import TableContent


def read_copy(database: Path) -> TableContent:
    """Everything that SQLite reads of a copy; a damage is one of its problems."""
    for left in database.parent.glob(".copy-*"):  # of a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    try:
        with tempfile.TemporaryDirectory(dir=database.parent, prefix=".copy-") as folder:
            copied = Path(folder) / database.name
            for suffix in replacement.SUFFIXES:
                source = database.with_name(database.name + suffix)
                if source.exists():
                    shutil.copyfile(source, copied.with_name(copied.name + suffix))
            return _read(copied)
    except OSError as error:
        raise DiskFull(
            f"a copy of {database} cannot be written: {error.strerror}; free space and retry"
        ) from error


def _read(copied: Path) -> TableContent:
    db = sqlite3.connect(copied, isolation_level=None)
    try:
        if db.execute("PRAGMA user_version").fetchone()[0] == 0:
            schema.prepare(db)
        return tables.read(db)
    except (sqlite3.Error, DatabaseDamaged) as error:
        return TableContent(problems=[str(error)])
    finally:
        db.close()
