"""
Replaces a database file by a complete new one, so that a crash leaves the old file or the new one.

The new file is renamed to ``NAME.next-STAMP``: from then on it counts, and whoever opens the
database finishes the replacement. The old file and its write-ahead log are kept as
``NAME.old-STAMP``.
"""

import os
from pathlib import Path

SUFFIXES = ("", "-wal")


def stage(database: Path, new: Path, stamp: str) -> None:
    """Replace the database by a file that is on disk completely; the old one is kept."""
    with new.open("rb") as file:
        os.fsync(file.fileno())
    new.rename(database.with_name(f"{database.name}.next-{stamp}"))
    _sync(database.parent)
    finish(database)


def finish(database: Path) -> None:
    """Finish a replacement that a crash interrupted; called before the database is opened."""
    for staged in sorted(database.parent.glob(f"{database.name}.next-*")):
        stamp = staged.name.rpartition(".next-")[2]
        for suffix in SUFFIXES:
            _keep(
                database.with_name(database.name + suffix),
                database.with_name(f"{database.name}.old-{stamp}{suffix}"),
            )
        for suffix in ("-wal", "-shm", "-journal", "-acknowledged"):
            database.with_name(database.name + suffix).unlink(missing_ok=True)
        _sync(database.parent)
        staged.replace(database)
        _sync(database.parent)


def _keep(old: Path, kept: Path) -> None:
    if old.exists() and old.stat().st_size and not kept.exists():
        kept.hardlink_to(old)


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
