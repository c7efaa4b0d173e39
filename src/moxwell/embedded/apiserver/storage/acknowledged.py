"""
Stores the last acknowledged revision of a database in a small file beside it.

SQLite drops a damaged last transaction of the write-ahead log, because a power failure may have
torn it. The file tells the two apart: it is written after the transaction is on disk, so a database
whose last revision is lower has lost acknowledged changes. The file itself is not synced: after a
power failure it may be older than the database, never newer.
"""

import contextlib
import os
import struct
import zlib
from pathlib import Path

from moxwell.embedded.apiserver.storage.errors import DatabaseDamaged

_RECORD = struct.Struct(">QI")  # the revision and its checksum


def path_of(database: Path) -> Path:
    return database.with_name(database.name + "-acknowledged")


def read(database: Path) -> int:
    """The last acknowledged revision; 0 if it is not known."""
    try:
        revision, checksum = _RECORD.unpack(path_of(database).read_bytes())
    except (FileNotFoundError, struct.error):
        return 0
    return int(revision) if checksum == _checksum(revision) else 0


def check(database: Path, last: int) -> None:
    """Raise DatabaseDamaged if acknowledged revisions are newer than the last one found."""
    acknowledged = read(database)
    if acknowledged > last:
        raise DatabaseDamaged(
            f"the database {database} ends at revision {last}, but revision {acknowledged} was "
            f"acknowledged: run `moxwell repair`, or restore a backup with `moxwell restore`"
        )


class AcknowledgedFile:
    """The open file of a database that is being written."""

    def __init__(self, database: Path) -> None:
        self._file = os.open(path_of(database), os.O_WRONLY | os.O_CREAT, 0o600)

    def write(self, revision: int) -> None:
        """Store a revision whose transaction is on disk."""
        record = _RECORD.pack(revision, _checksum(revision))
        with contextlib.suppress(OSError):  # a full disk: an older revision proves less, not wrong
            os.pwrite(self._file, record, 0)

    def close(self) -> None:
        os.close(self._file)


def _checksum(revision: int) -> int:
    return zlib.crc32(struct.pack(">Q", revision))
