"""
Replaces a database by a backup, with a jump of the revision.

Clients have seen revisions that are newer than the backup. The restored database continues far
above both, and its whole history counts as compacted (as ``etcdutl snapshot restore
--bump-revision --mark-compacted`` does), so that every watch gets 410 and lists again.
"""

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from moxwell.embedded.apiserver.storage import backup, new_file, replacement, schema
from moxwell.embedded.apiserver.storage.rows import LogRow

BUMP = 1_000_000_000  # as etcd's documentation recommends


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What a restore did."""

    objects: int
    backup_revision: int
    revision: int
    kept: Path | None  # the replaced database


def restore(source: Path, database: Path, stamp: str) -> RestoreReport:
    """Verify a backup and replace the database by it; nothing may have the database open."""
    content = backup.verify(source)
    rows = current_rows(content.sorted_rows())
    known = max(content.floor, max(content.rows, default=0))
    revision = max(known, last_revision(database)) + BUMP
    database.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replacement.finish(database)
    new = database.with_name(f".{database.name}.restored")
    new_file.write(
        new,
        rows,
        floor=revision,
        values=content.values,
        unreadable=schema.decode_names(content.values[schema.UNREADABLE]),
        lost=schema.decode_names(content.values[schema.LOST]),
    )
    existed = database.exists()
    replacement.stage(database, new, stamp)
    kept = database.with_name(f"{database.name}.old-{stamp}") if existed else None
    return RestoreReport(len(rows), known, revision, kept)


def current_rows(rows: tuple[LogRow, ...]) -> tuple[LogRow, ...]:
    """The newest row of each object that exists, in the order of their revisions."""
    newest: dict[tuple[str, str], LogRow] = {}
    for row in rows:
        newest.pop((row.group_resource, row.key), None)
        newest[row.group_resource, row.key] = row
    return tuple(row for row in newest.values() if not row.deleted)


def last_revision(database: Path) -> int:
    """The newest revision that a database may have given out; 0 if it cannot be read."""
    if not database.exists():
        return 0
    try:
        db = sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)
        try:
            (found,) = db.execute("SELECT max(revision) FROM log").fetchone()
            floor = schema.get_value(db, schema.FLOOR)
        finally:
            db.close()
    except (sqlite3.Error, ValueError):
        return 0
    return max(int(found or 0), int(floor or b"0"))
