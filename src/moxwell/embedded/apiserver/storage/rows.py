"""
A row of the revision log and its checksum; pure.

The checksum covers every column, so a row can be verified wherever it is found: through the table,
in a page of a damaged file or in a frame of the write-ahead log. The digest of the log is stored
with every transaction: the number of rows, the sum of their checksums and the sum of the checksums
of their names. It proves that no row is missing, or that the names of the missing rows are right.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

_MODULUS = 1 << 64
_SIGN = 1 << 63


class LogRow(NamedTuple):
    """A row of the log: one change of one object; the body is bytes of any content."""

    revision: int
    group_resource: str
    key: str
    deleted: bool
    body: bytes


class RowName(NamedTuple):
    """What identifies a row: the object and the revision."""

    group_resource: str
    key: str
    revision: int

    def __str__(self) -> str:
        return f"{self.group_resource} {self.key} (revision {self.revision})"


def name_of(row: LogRow) -> RowName:
    return RowName(row.group_resource, row.key, row.revision)


def checksum(row: LogRow) -> int:
    """Return a signed 64-bit checksum of all columns."""
    head = f"{row.revision} {len(row.group_resource)} {row.group_resource} {len(row.key)} "
    head += f"{row.key} {row.deleted:d} "
    return _hash(head.encode("utf-8", "surrogatepass"), row.body)


def value_checksum(name: str, value: bytes) -> int:
    """Return the checksum of a named value beside the log."""
    return _hash(f"{len(name)} {name} ".encode(), value)


def _hash(head: bytes, body: bytes) -> int:
    hashed = blake2b(head, digest_size=8)
    hashed.update(body)
    return _signed(int.from_bytes(hashed.digest(), "big"))


def _signed(value: int) -> int:
    value %= _MODULUS
    return value - _MODULUS if value >= _SIGN else value


def name_checksum(name: RowName) -> int:
    """Return the checksum of a row's name."""
    text = f"{name.revision} {len(name.group_resource)} {name.group_resource} {name.key}"
    return _hash(text.encode("utf-8", "surrogatepass"), b"")


@dataclass(frozen=True, slots=True)
class LogDigest:
    """The number of rows, the sum of their checksums, the sum of the checksums of their names."""

    rows: int = 0
    total: int = 0
    names: int = 0

    def add(self, name: RowName, made: int) -> "LogDigest":
        return LogDigest(
            self.rows + 1, _signed(self.total + made), _signed(self.names + name_checksum(name))
        )

    def remove(self, name: RowName, made: int) -> "LogDigest":
        return LogDigest(
            self.rows - 1, _signed(self.total - made), _signed(self.names - name_checksum(name))
        )

    def plus(self, total: int, names: int) -> "LogDigest":
        """The digest with sums of further checksums."""
        return LogDigest(self.rows, _signed(self.total + total), _signed(self.names + names))

    def encode(self) -> bytes:
        return f"{self.rows} {self.total} {self.names}".encode()


def parse_digest(value: bytes) -> LogDigest:
    rows, total, names = value.split()
    return LogDigest(int(rows), int(total), int(names))


def parse_row(columns: tuple[object, ...]) -> LogRow | None:
    """Build a row from columns as :data:`COLUMNS` selects them; None if the checksum differs."""
    revision, group_resource, key, deleted, body, stored = columns
    if not isinstance(revision, int) or not isinstance(body, bytes):
        return None
    if not isinstance(group_resource, bytes) or not isinstance(key, bytes):
        return None
    try:
        row = LogRow(revision, group_resource.decode(), key.decode(), bool(deleted), body)
    except UnicodeDecodeError:
        return None
    return row if deleted in (0, 1) and checksum(row) == stored else None


# Casts: SQLite converts no text of a damaged page, so that every value can be verified here.
COLUMNS = (
    "revision, CAST(store AS BLOB), CAST(key AS BLOB), CAST(deleted AS INTEGER), "
    "CAST(body AS BLOB), CAST(checksum AS INTEGER)"
)
