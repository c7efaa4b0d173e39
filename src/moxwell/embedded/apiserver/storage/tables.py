"""
Reads the tables of a database file and verifies every row, despite damaged pages.

The table is read from both ends; rows between two damaged pages are read one by one, by the
revisions that the index names.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from moxwell.embedded.apiserver.storage import schema
from moxwell.embedded.apiserver.storage.rows import (
    COLUMNS,
    LogDigest,
    LogRow,
    RowName,
    checksum,
    name_checksum,
    name_of,
    parse_digest,
    parse_row,
)


@dataclass(slots=True)
class TableContent:
    """What can be read and verified."""

    rows: dict[int, LogRow] = field(default_factory=dict)
    names: dict[int, RowName] | None = None  # of the index; None if it cannot be read to its end
    digest: LogDigest | None = None
    floor: int = 0
    values: dict[str, bytes] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    sums: dict[int, int] = field(default_factory=dict)  # checksums, where they are known

    def sorted_rows(self) -> tuple[LogRow, ...]:
        return tuple(self.rows[revision] for revision in sorted(self.rows))

    def last_revision(self) -> int:
        """The newest revision of which anything was found."""
        names: Iterable[int] = self.names or ()
        return max([self.floor, *self.rows, *names])

    def is_complete(self) -> bool:
        """Whether no row is missing."""
        return self.digest is not None and self.digest == self.found_digest()

    def found_digest(self) -> LogDigest:
        """The digest of the rows that were found."""
        total = names = 0
        for revision, row in self.rows.items():
            total += self.sums.get(revision) or checksum(row)
            names += name_checksum(name_of(row))
        return LogDigest(len(self.rows)).plus(total, names)

    def missing(self) -> tuple[RowName, ...] | None:
        """The names of the missing rows; None if they cannot be proven."""
        if self.is_complete() and self._has_values():
            return ()
        if self.digest is None or self.names is None or not self._has_values():
            return None
        found = tuple(n for r, n in sorted(self.names.items()) if r not in self.rows)
        whole = self.found_digest()
        for name in found:
            whole = whole.add(name, 0)
        same = (whole.rows, whole.names) == (self.digest.rows, self.digest.names)
        return found if same else None

    def is_healthy(self) -> bool:
        """Whether the file can be used as it is."""
        proven = self.is_complete() and self._has_values() and schema.FLOOR in self.values
        return proven and not self.problems and self._is_index_right()

    def _is_index_right(self) -> bool:
        names, rows = self.names or {}, self.rows
        return len(names) == len(rows) and all(
            r in rows and rows[r].key == n.key and rows[r].group_resource == n.group_resource
            for r, n in names.items()
        )

    def _has_values(self) -> bool:
        return schema.UNREADABLE in self.values and schema.LOST in self.values


def read(db: sqlite3.Connection) -> TableContent:
    """Read everything that the file still gives."""
    found = TableContent()
    _check_pages(db, found)
    _read_table(db, found)
    _read_index(db, found)
    for revision in found.names or ():
        if revision not in found.rows:
            _read_rows(db, found, f"WHERE revision = {revision:d}")
    _read_values(db, found)
    return found


def _check_pages(db: sqlite3.Connection, found: TableContent) -> None:
    try:
        report = [str(line) for (line,) in db.execute("PRAGMA quick_check(3)")]
    except sqlite3.Error as error:
        report = [str(error)]
    if report != ["ok"]:
        found.problems += report


def _read_table(db: sqlite3.Connection, found: TableContent) -> None:
    if not _read_rows(db, found, "ORDER BY revision"):
        last = max(found.rows, default=0)
        _read_rows(db, found, f"WHERE revision > {last:d} ORDER BY revision DESC")


def _read_rows(db: sqlite3.Connection, found: TableContent, which: str) -> bool:
    """Read rows up to the first unreadable page; returns whether all were readable."""
    try:
        for columns in db.execute(f"SELECT {COLUMNS} FROM log NOT INDEXED {which}"):
            row = parse_row(columns)
            if row is None:
                found.problems.append(f"the row of revision {columns[0]} has a wrong checksum")
            else:
                found.rows[row.revision] = row
                found.sums[row.revision] = columns[5]
    except (sqlite3.Error, OverflowError) as error:
        found.problems.append(str(error))
        return False
    return True


def _read_index(db: sqlite3.Connection, found: TableContent) -> None:
    try:
        found.names = {name.revision: name for name in _index_names(db)}
    except (sqlite3.Error, UnicodeDecodeError, ValueError) as error:
        found.problems.append(f"the index: {error}")


def _index_names(db: sqlite3.Connection) -> Iterator[RowName]:
    query = (
        "SELECT CAST(store AS BLOB), CAST(key AS BLOB), revision FROM log INDEXED BY log_by_key"
        " ORDER BY store, key, revision"
    )
    for group_resource, key, revision in db.execute(query):
        if not isinstance(revision, int):
            raise ValueError("an entry has no revision")
        yield RowName((group_resource or b"").decode(), (key or b"").decode(), revision)


def _read_values(db: sqlite3.Connection, found: TableContent) -> None:
    """Read the values beside the log; without a readable floor the history is not used."""
    try:
        names = [str(name) for (name,) in db.execute("SELECT name FROM meta NOT INDEXED")]
    except (sqlite3.Error, UnicodeDecodeError) as error:
        found.problems.append(str(error))
        names = [schema.DIGEST, schema.FLOOR, schema.LOST, schema.UNREADABLE]
    for name in names:
        try:
            value = schema.get_value(db, name)
        except (sqlite3.Error, ValueError) as error:
            found.problems.append(str(error))
            continue
        if value is not None:
            found.values[name] = value
    if schema.DIGEST in found.values:
        found.digest = parse_digest(found.values[schema.DIGEST])
    found.floor = int(found.values.get(schema.FLOOR, b"0"))
    if schema.FLOOR not in found.values:
        found.floor = max(found.rows, default=0)


def unreadable_objects(found: TableContent, missing: Iterable[RowName]) -> tuple[RowName, ...]:
    """The objects whose newest row is missing; older missing rows are history only."""
    newest: dict[tuple[str, str], int] = {}
    for row in found.rows.values():
        at = (row.group_resource, row.key)
        newest[at] = max(newest.get(at, 0), row.revision)
    lost: dict[tuple[str, str], RowName] = {}
    for name in sorted(missing, key=lambda n: n.revision):
        at = (name.group_resource, name.key)
        if newest.get(at, 0) < name.revision:
            lost[at] = name
    return tuple(lost.values())
