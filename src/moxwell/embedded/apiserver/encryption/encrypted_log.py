"""
A revision log whose rows are encrypted; everything above it sees plain bodies.

At the start it collects the objects that are stored as plain text or with an older key;
:func:`rewrite` stores them again. Rows of the history keep their key until compaction drops them.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.encryption.envelope import RowEncryption
from moxwell.embedded.apiserver.revision_log import LoadedLog, RevisionLog
from moxwell.embedded.apiserver.storage.rows import LogRow
from moxwell.embedded.apiserver.storage.settings import StorageSettings

Place = tuple[str, str]  # group resource and key


class EncryptedLog(RevisionLog):
    """The SQLite file; encrypts on commit and decrypts on load."""

    def __init__(
        self,
        path: Path,
        settings: StorageSettings,
        encryption: RowEncryption,
        *,
        max_pages: int | None = None,
    ) -> None:
        super().__init__(path, settings, max_pages=max_pages)
        self._encryption = encryption
        self._outdated: dict[Place, bool] = {}

    def load(self, stamp: str) -> LoadedLog:
        """Read and verify all rows; KeyMissing if one cannot be decrypted."""
        loaded = super().load(stamp)
        for row in loaded.rows:
            current = row.deleted or self._encryption.is_current(row)
            self._outdated[row.group_resource, row.key] = not current
        return replace(loaded, rows=tuple(self._encryption.decrypt(row) for row in loaded.rows))

    def commit(self, rows: Sequence[LogRow]) -> None:
        """Commit rows in one transaction; durable when it returns."""
        super().commit([self._encryption.encrypt(row) for row in rows])

    def outdated(self) -> list[Place]:
        """The objects to be stored again."""
        return [place for place, is_old in self._outdated.items() if is_old]


def open_log(
    path: Path | None,
    settings: StorageSettings,
    encryption: RowEncryption | None,
    max_pages: int | None,
) -> RevisionLog | None:
    """The log of a file, encrypted if there are keys; None without a file."""
    if path is None:
        return None
    if encryption is None:
        return RevisionLog(path, settings, max_pages=max_pages)
    return EncryptedLog(path, settings, encryption, max_pages=max_pages)


def rewrite(core: ServerContext, log: RevisionLog | None) -> int:
    """
    Stage every object whose row is plain text or has an older key; returns how many.

    A database above its quota accepts no writes; the next start below it stores them again.
    """
    done = 0
    if log is None or log.usage.alarm:
        return done
    for group_resource, key in log.outdated() if isinstance(log, EncryptedLog) else ():
        resource, record = core.registry.hub(group_resource), core.cache.find(group_resource, key)
        if resource is not None and record is not None:
            core.put(resource, record.object(), record)
            done += 1
    return done
