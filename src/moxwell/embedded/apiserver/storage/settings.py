"""The settings of a database file: quota, history, backups."""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Retention:
    """Which backups are kept: the latest ones, and one for each of the last days and weeks."""

    latest: int = 4
    days: int = 7
    weeks: int = 4


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """The limits of one database and the schedule of its backups."""

    quota_bytes: int = 2048 * MIB  # as etcd's default
    history: timedelta = timedelta(minutes=5)  # as kube-apiserver's compaction interval
    history_bytes: int = 64 * MIB
    backup_every: timedelta = timedelta(hours=6)  # zero: no scheduled backups
    retention: Retention = field(default_factory=Retention)
    backups: Path | None = None  # default: the folder ``backups`` beside the database

    def backup_folder(self, database: Path) -> Path:
        return self.backups or database.parent / "backups"
