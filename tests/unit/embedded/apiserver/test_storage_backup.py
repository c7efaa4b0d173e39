"""Backups: schedule, retention, verification; restore with a jump of the revision."""

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from moxwell.embedded.apiserver.revision_log import RevisionLog
from moxwell.embedded.apiserver.storage import backup, replacement, restore
from moxwell.embedded.apiserver.storage.backup import BackupFile
from moxwell.embedded.apiserver.storage.errors import InvalidBackup
from moxwell.embedded.apiserver.storage.rows import LogRow
from moxwell.embedded.apiserver.storage.settings import Retention, StorageSettings

NOW = datetime(2026, 3, 20, 12, 0, tzinfo=UTC)
STAMP = "20260320T120000Z"
HOUR = timedelta(hours=1)


def made(hours_ago: float, revision: int = 7) -> BackupFile:
    return BackupFile(Path(f"{hours_ago}"), NOW - hours_ago * HOUR, revision)


@pytest.mark.parametrize(
    "backups, revision, every, due",
    [
        pytest.param([], 1, 6 * HOUR, True, id="the first"),
        pytest.param([], 1, 0 * HOUR, False, id="disabled"),
        pytest.param([made(5)], 9, 6 * HOUR, False, id="too early"),
        pytest.param([made(30), made(6)], 9, 6 * HOUR, True, id="due"),
        pytest.param([made(6)], 7, 6 * HOUR, False, id="nothing changed"),
        pytest.param([made(-48)], 9, 6 * HOUR, True, id="the clock was set back"),
    ],
)
def test_a_backup_is_due(
    backups: list[BackupFile], revision: int, every: timedelta, due: bool
) -> None:
    assert backup.is_due(backups, revision=revision, now=NOW, every=every) is due


def test_retention_keeps_the_latest_and_one_per_day_and_week() -> None:
    every_six_hours = [made(6 * n) for n in range(4 * 40)]
    expired = backup.choose_expired(every_six_hours, Retention(latest=4, days=7, weeks=4))
    ages = sorted(
        (NOW - b.made).total_seconds() / 3600 for b in every_six_hours if b not in set(expired)
    )
    # March 20 is a Friday: days end at 18:00 of the day before, weeks on Sunday at 18:00
    assert ages == [0, 6, 12, 18, 42, 66, 90, 114, 138, 282, 450]


@pytest.mark.parametrize("retention", [Retention(0, 0, 0), Retention(1, 0, 0)])
def test_the_newest_backup_is_always_kept(retention: Retention) -> None:
    assert made(1) not in backup.choose_expired([made(1), made(2)], retention)


def write_log(path: Path, revisions: range) -> RevisionLog:
    log = RevisionLog(path, StorageSettings())
    log.load(STAMP)
    for revision in revisions:
        body = b'{"n":%d}' % revision
        log.commit([LogRow(revision, "configmaps", f"default/c{revision % 7}", False, body)])
    return log


def make_backup(log: RevisionLog, folder: Path) -> BackupFile:
    log.backup(backup.partial_path(folder), lambda: None)
    return backup.complete(backup.partial_path(folder), NOW)


def test_commits_between_the_steps_of_a_backup_do_not_break_it(tmp_path: Path) -> None:
    log = write_log(tmp_path / "db", range(2, 400))
    steps: list[int] = []

    def commit_more() -> None:
        revision = 400 + len(steps)
        steps.append(revision)
        log.commit([LogRow(revision, "configmaps", "default/late", False, b"x" * 50_000)])

    log.backup(backup.partial_path(tmp_path / "b"), commit_more)
    content = backup.verify(backup.partial_path(tmp_path / "b"))
    assert steps
    assert set(range(2, 400)) <= set(content.rows)
    log.close()


def test_backups_are_private_and_listed_by_time(tmp_path: Path) -> None:
    log = write_log(tmp_path / "db", range(2, 12))
    one = make_backup(log, tmp_path / "b")
    assert one.path.name == f"{STAMP}-r11.db"
    assert one.path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "b" / "other.db").write_bytes(b"")
    assert backup.list_backups(tmp_path / "b") == (one,)
    log.close()


@pytest.mark.parametrize("damage", ["truncated", "changed", "text", "empty"])
def test_a_damaged_backup_is_refused_and_nothing_changes(tmp_path: Path, damage: str) -> None:
    log = write_log(tmp_path / "db", range(2, 300))
    path = make_backup(log, tmp_path / "b").path
    log.close()
    data = bytearray(path.read_bytes())
    at = data.index(b'{"n":150}')
    changed = {
        "truncated": bytes(data[: len(data) // 2]),
        "changed": bytes(data[:at]) + b'{"n":151}' + bytes(data[at + 9 :]),
        "text": b"not a database\n" * 500,
        "empty": b"",
    }
    path.write_bytes(changed[damage])
    before = (tmp_path / "db").read_bytes()
    with pytest.raises(InvalidBackup):
        restore.restore(path, tmp_path / "db", STAMP)
    assert (tmp_path / "db").read_bytes() == before


def test_a_restore_continues_above_every_known_revision(tmp_path: Path) -> None:
    log = write_log(tmp_path / "db", range(2, 20))
    path = make_backup(log, tmp_path / "b").path
    for revision in range(20, 30):
        log.commit([LogRow(revision, "configmaps", "default/new", False, b"{}")])
    log.close()
    report = restore.restore(path, tmp_path / "db", STAMP)
    assert (report.objects, report.backup_revision) == (7, 19)
    assert report.revision == 29 + restore.BUMP
    restored = RevisionLog(tmp_path / "db", StorageSettings())
    loaded = restored.load(STAMP)
    assert loaded.floor == loaded.revision == report.revision
    assert {row.key for row in loaded.rows} == {f"default/c{n}" for n in range(7)}
    restored.close()
    assert report.kept is not None
    kept = sqlite3.connect(report.kept)
    assert kept.execute("SELECT max(revision) FROM log").fetchone() == (29,)
    kept.close()


def test_a_restore_into_an_empty_folder(tmp_path: Path) -> None:
    log = write_log(tmp_path / "db", range(2, 20))
    path = make_backup(log, tmp_path / "b").path
    log.close()
    assert restore.restore(path, tmp_path / "new" / "db", STAMP).kept is None
    assert (tmp_path / "new" / "db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("steps", range(6))
def test_an_interrupted_replacement_is_finished_by_the_next_start(
    tmp_path: Path, steps: int
) -> None:
    """Each state between the steps of a replacement, with a write-ahead log of the old file."""
    database, staged = tmp_path / "db", tmp_path / f"db.next-{STAMP}"
    write_log(database, range(2, 9)).close()
    old = database.read_bytes()
    write_log(tmp_path / "new", range(2, 5)).close()
    new = (tmp_path / "new").read_bytes()
    (tmp_path / "db-wal").write_bytes(b"wal of the old file")
    (tmp_path / "new").rename(staged)
    kept, kept_wal = tmp_path / f"db.old-{STAMP}", tmp_path / f"db.old-{STAMP}-wal"
    for step in (
        lambda: kept.hardlink_to(database),
        lambda: kept_wal.hardlink_to(tmp_path / "db-wal"),
        (tmp_path / "db-wal").unlink,
        (tmp_path / "db-acknowledged").unlink,
        lambda: staged.replace(database),
    )[:steps]:
        step()
    replacement.finish(database)
    assert (database.read_bytes(), kept.read_bytes()) == (new, old)
    assert kept_wal.read_bytes() == b"wal of the old file"
    assert sorted(p.name for p in tmp_path.glob("db*")) == ["db", kept.name, kept_wal.name]
