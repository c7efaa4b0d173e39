"""
Writes a new database from everything that can be read of a damaged one.

Rows come from the tables, from the raw pages and from the write-ahead log; each is verified by its
checksum. What the index names and no row gives is lost and reported. The damaged file is kept. The
revision jumps as in a restore, so that clients list again.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moxwell.embedded.apiserver.storage import (
    acknowledged,
    new_file,
    offline,
    pages,
    replacement,
    restore,
    schema,
    tables,
    wal,
)
from moxwell.embedded.apiserver.storage.errors import DatabaseDamaged
from moxwell.embedded.apiserver.storage.rows import LogRow, RowName, name_of
from moxwell.embedded.apiserver.storage.tables import TableContent


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair found and did."""

    damaged: bool
    objects: int = 0
    lost: tuple[RowName, ...] = ()  # no content: the object is gone
    older: tuple[tuple[RowName, int], ...] = ()  # an older content was used: its revision
    proven: bool = True  # no further row is missing
    gaps: int = 0  # missing revisions of the history; objects may have an older content
    problems: tuple[str, ...] = ()
    revision: int = 0
    kept: Path | None = None


@dataclass(slots=True)
class _Found:
    """Everything that was found of a file."""

    rows: dict[int, LogRow] = field(default_factory=dict)
    names: dict[int, RowName] = field(default_factory=dict)
    content: TableContent = field(default_factory=TableContent)
    known: tuple[RowName, ...] = ()
    lost: tuple[RowName, ...] = ()


def repair(
    database: Path, stamp: str, *, use_older: bool = False, dry_run: bool = False
) -> RepairReport:
    """
    Repair a database that nothing has open; a healthy one is left alone.

    ``use_older`` uses the newest readable content of an object whose last change is lost, if the
    history has one.
    """
    replacement.finish(database)
    found = _collect(database)
    if found.content.is_healthy() and not found.known:
        return RepairReport(damaged=False, objects=len(restore.current_rows(_sorted(found.rows))))
    missing = _missing(found)
    rows, lost, older = choose(found.rows, missing, use_older=use_older)
    revision = max([0, found.content.floor, *found.rows, *found.names]) + restore.BUMP
    report = RepairReport(
        damaged=True,
        objects=len(rows),
        lost=lost,
        older=older,
        proven=_is_proven(found),
        gaps=count_gaps(found.names, found.content.floor),
        problems=tuple(found.content.problems[:20]),
        revision=revision,
        kept=database.with_name(f"{database.name}.old-{stamp}"),
    )
    if not dry_run:
        new = database.with_name(f".{database.name}.repaired")
        values = found.content.values
        new_file.write(
            new, rows, floor=revision, values=values, lost=_without_duplicates(found.lost, lost)
        )
        replacement.stage(database, new, stamp)
    return report


def _sorted(rows: Mapping[int, LogRow]) -> tuple[LogRow, ...]:
    return tuple(rows[revision] for revision in sorted(rows))


def _without_duplicates(*groups: tuple[RowName, ...]) -> tuple[RowName, ...]:
    return tuple({(n.group_resource, n.key): n for group in groups for n in group}.values())


def _collect(database: Path) -> _Found:
    found = _Found(content=offline.read_copy(database))
    try:
        wal.check(database)
        acknowledged.check(database, found.content.last_revision())
    except DatabaseDamaged as error:
        found.content.problems.append(str(error))
        found.content.digest = None  # it is older than what is lost
    found.rows.update(found.content.rows)
    found.names.update(found.content.names or {})
    if not found.content.is_healthy():
        carved = pages.carve(database)
        found.rows = {**carved.rows, **found.rows}
        found.names = {**carved.names, **found.names}
    found.names.update({r: name_of(row) for r, row in found.rows.items()})
    values = found.content.values
    found.known = schema.decode_names(values.get(schema.UNREADABLE, b"[]"))
    found.lost = schema.decode_names(values.get(schema.LOST, b"[]"))
    return found


def _missing(found: _Found) -> tuple[RowName, ...]:
    """The named rows that have no content; also those that an earlier start found."""
    missing = [n for r, n in sorted(found.names.items()) if r not in found.rows]
    return (*found.known, *missing)


def _is_proven(found: _Found) -> bool:
    """Whether rows and names together are everything that the digest counts."""
    whole = TableContent(
        rows=found.rows,
        names=found.names,
        digest=found.content.digest,
        values=found.content.values,
    )
    return whole.missing() is not None


def count_gaps(revisions: Collection[int], floor: int) -> int:
    """How many revisions above the floor no row and no name has."""
    above = [revision for revision in revisions if revision > floor]
    return max(above) - max(floor, 1) - len(above) if above else 0  # the first revision is 2


def choose(
    rows: Mapping[int, LogRow], missing: tuple[RowName, ...], *, use_older: bool
) -> tuple[tuple[LogRow, ...], tuple[RowName, ...], tuple[tuple[RowName, int], ...]]:
    """Decide what the new database holds: rows, lost objects, objects with an older content."""
    content = TableContent(rows=dict(rows))
    damaged = tables.unreadable_objects(content, missing)
    current = {(r.group_resource, r.key): r for r in restore.current_rows(_sorted(rows))}
    lost, older = [], []
    for name in damaged:
        at = (name.group_resource, name.key)
        if use_older and at in current:
            older.append((name, current[at].revision))
        else:
            current.pop(at, None)
            lost.append(name)
    kept = tuple(sorted(current.values(), key=lambda row: row.revision))
    return kept, tuple(lost), tuple(older)
