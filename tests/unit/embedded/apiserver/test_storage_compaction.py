"""Compaction of the revision log by age and bytes, the quota and its alarm."""

from pathlib import Path

import pytest

from moxwell.embedded.apiserver.revision_log import RevisionLog
from moxwell.embedded.apiserver.storage import compaction
from moxwell.embedded.apiserver.storage.compaction import HistoryMark as Mark
from moxwell.embedded.apiserver.storage.compaction import HistoryWindow
from moxwell.embedded.apiserver.storage.rows import LogRow
from moxwell.embedded.apiserver.storage.settings import StorageSettings

SETTINGS = StorageSettings()


@pytest.mark.parametrize(
    "marks, revision, now, kept, floor",
    [
        pytest.param((), 5, 100, (Mark(5, 100),), 0, id="the first mark"),
        pytest.param((Mark(5, 100),), 5, 160, (Mark(5, 100),), 0, id="nothing changed"),
        pytest.param((Mark(5, 100),), 9, 399, (Mark(5, 100), Mark(9, 399)), 0, id="not old enough"),
        pytest.param((Mark(5, 100),), 9, 400, (Mark(9, 400),), 5, id="five minutes old"),
        pytest.param((Mark(5, 1), Mark(7, 2)), 9, 400, (Mark(9, 400),), 7, id="the newest old one"),
        pytest.param(
            (Mark(5, 999),), 9, 400, (Mark(5, 400), Mark(9, 400)), 0, id="from the future"
        ),
    ],
)
def test_history_is_kept_for_five_minutes(
    marks: tuple[Mark, ...], revision: int, now: float, kept: tuple[Mark, ...], floor: int
) -> None:
    assert compaction.advance(marks, revision, now, 300) == (kept, floor)


def test_a_clock_that_was_set_back_delays_compaction_by_its_interval_only() -> None:
    marks, floor = compaction.advance((Mark(5, 10_000),), 9, 400, 300)
    assert floor == 0
    assert compaction.advance(marks, 12, 700, 300)[1] == 9


@pytest.mark.parametrize(
    "sizes, limit, floor",
    [
        pytest.param([10, 10], 20, 0, id="within the limit"),
        pytest.param([10, 10, 10], 20, 2, id="half of the limit remains"),
        pytest.param([100], 20, 1, id="one large change"),
    ],
)
def test_a_large_history_is_compacted(sizes: list[int], limit: int, floor: int) -> None:
    window = HistoryWindow()
    window.add(enumerate(sizes, start=1))
    assert window.choose_floor(limit) == floor
    window.drop(floor)
    assert window.choose_floor(limit) == 0


@pytest.mark.parametrize(
    "raised, used, expected",
    [(False, 100, False), (False, 101, True), (True, 95, True), (True, 90, False)],
)
def test_the_alarm_is_raised_above_the_quota_and_cleared_with_a_tenth_free(
    raised: bool, used: int, expected: bool
) -> None:
    assert compaction.next_alarm(raised, used=used, quota=100) is expected


def row(revision: int, key: str, *, deleted: bool = False, body: bytes = b"{}") -> LogRow:
    return LogRow(revision, "configmaps", key, deleted, body)


def opened(path: Path, settings: StorageSettings = SETTINGS) -> RevisionLog:
    log = RevisionLog(path, settings)
    log.load("20260101T000000Z")
    return log


def content(path: Path) -> tuple[list[int], int]:
    log = RevisionLog(path, SETTINGS)
    loaded = log.load("20260101T000000Z")
    log.close()
    assert not loaded.rebuilt
    return [r.revision for r in loaded.rows], loaded.floor


def test_compaction_keeps_the_newest_row_of_each_object_and_no_deletion(tmp_path: Path) -> None:
    log = opened(tmp_path / "db")
    log.commit([row(2, "a"), row(3, "b"), row(4, "a"), row(5, "b", deleted=True), row(6, "c")])
    log.compact_all()
    log.commit([row(7, "c")])
    log.close()
    assert content(tmp_path / "db") == ([4, 6, 7], 6)


def test_a_process_that_restarts_every_minute_compacts_too(tmp_path: Path) -> None:
    revision = 1
    for minute in range(12):
        log = opened(tmp_path / "db")
        for _ in range(10):
            revision += 1
            log.commit([row(revision, "a")])
        log.compact_old(60.0 * minute)
        log.close()
    kept, floor = content(tmp_path / "db")
    assert floor == revision - 50  # the history of five minutes
    assert kept == list(range(floor, revision + 1))


def test_the_history_is_limited_in_bytes_also_after_a_restart(tmp_path: Path) -> None:
    settings = StorageSettings(history_bytes=100_000)
    for start in (2, 202, 402):
        log = opened(tmp_path / "db", settings)
        for revision in range(start, start + 200):
            log.commit([row(revision, "a", body=b"x" * 1000)])
        assert log.usage.history_bytes <= 100_000
        log.close()
    kept, floor = content(tmp_path / "db")
    assert kept[-1] == 601
    assert floor >= 500
    assert len(kept) <= 102


def test_heartbeats_do_not_let_the_file_grow(tmp_path: Path) -> None:
    log = opened(tmp_path / "db")
    revision, sizes = 1, []
    for minute in range(60):
        rows = [row(revision + n + 1, f"n{n}", body=b"x" * 700) for n in range(100)]
        revision += 100
        log.commit(rows)
        log.compact_old(60.0 * minute)
        sizes.append(log.usage.file_bytes)
    assert max(sizes[10:]) <= 1.3 * sizes[10]
    log.close()


def test_writes_above_the_quota_raise_the_alarm_and_deletions_clear_it(tmp_path: Path) -> None:
    log = opened(tmp_path / "db", StorageSettings(quota_bytes=1_000_000))
    revision = 1
    while not log.usage.alarm:
        revision += 1
        log.commit([row(revision, f"c{revision}", body=b"x" * 10_000)])
    assert log.usage.used_bytes > 1_000_000
    for number in range(2, 40):
        revision += 1
        log.commit([row(revision, f"c{number}", deleted=True, body=b"x" * 10_000)])
    assert not log.usage.alarm
    log.close()


def test_history_alone_never_raises_the_alarm(tmp_path: Path) -> None:
    log = opened(tmp_path / "db", StorageSettings(quota_bytes=1_000_000))
    for revision in range(2, 400):
        log.commit([row(revision, "a", body=b"x" * 10_000)])
        assert not log.usage.alarm
    log.close()
