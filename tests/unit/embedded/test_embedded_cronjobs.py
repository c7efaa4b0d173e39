"""CronJobs: when a Job is created, what runs beside it, which Jobs are kept."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from moxwell.embedded.controllermanager.cronjob.plan import (
    LAST_SCHEDULE,
    SCHEDULED_AT,
    ObservedCronJob,
    describe,
    next_move,
)
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Create, Delete, Merge, Writes

Json = dict[str, Any]
CREATED = datetime(2026, 3, 20, 11, 30, tzinfo=UTC)


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def cronjob(*, last: datetime | None = None, schedule: str = "0 * * * *", **spec: Any) -> Json:
    meta: Json = {"name": "tick", "namespace": "d", "uid": "c", "creationTimestamp": stamp(CREATED)}
    if last:
        meta["annotations"] = {LAST_SCHEDULE: stamp(last)}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"template": {}}}
    return {"metadata": meta, "spec": {"schedule": schedule, "jobTemplate": template, **spec}}


def job(name: str, ended: str = "", minute: int = 0) -> Json:
    conditions = [{"type": ended, "status": "True"}] if ended else []
    created = stamp(CREATED + timedelta(minutes=minute))
    meta = {"name": name, "namespace": "d", "uid": f"u-{name}", "creationTimestamp": created}
    done = {"completionTime": created} if ended == "Complete" else {}
    return {"metadata": meta, "status": {"conditions": conditions, **done}}


def at(hour: int, minute: int = 0, *jobs: Json, day: int = 20) -> ObservedCronJob:
    return ObservedCronJob(jobs, datetime(2026, 3, day, hour, minute, tzinfo=UTC))


def created(move: object) -> list[str]:
    writes = move.writes if isinstance(move, Writes) else ()
    rows = [w.obj["metadata"]["annotations"][SCHEDULED_AT] for w in writes if isinstance(w, Create)]
    return [str(row) for row in rows]


def deleted(move: object) -> list[str]:
    writes = move.writes if isinstance(move, Writes) else ()
    return [w.name for w in writes if isinstance(w, Delete)]


TIMES: dict[str, tuple[Json, ObservedCronJob, list[str]]] = {
    "before the first time": (cronjob(), at(11, 59), []),
    "at the first time": (cronjob(), at(12), ["2026-03-20T12:00:00Z"]),
    "only the latest of several missed": (cronjob(), at(15, 30), ["2026-03-20T15:00:00Z"]),
    "a time that was handled": (
        cronjob(last=datetime(2026, 3, 20, 12, tzinfo=UTC)),
        at(12, 59),
        [],
    ),
    "after a long stop": (cronjob(schedule="0 3 * * 1"), at(4, day=31), ["2026-03-30T03:00:00Z"]),
    "too late": (cronjob(startingDeadlineSeconds=60), at(12, 2), []),
    "in time": (cronjob(startingDeadlineSeconds=180), at(12, 2), ["2026-03-20T12:00:00Z"]),
    "suspended": (cronjob(suspend=True), at(12), []),
    "another time zone": (
        cronjob(schedule="0 13 * * *", timeZone="Europe/Berlin"),
        at(12),
        ["2026-03-20T12:00:00Z"],
    ),
    "beside a running one": (cronjob(), at(12, 0, job("a")), ["2026-03-20T12:00:00Z"]),
    "not beside a running one": (cronjob(concurrencyPolicy="Forbid"), at(12, 0, job("a")), []),
    "instead of a running one": (
        cronjob(concurrencyPolicy="Replace"),
        at(12, 0, job("a")),
        ["2026-03-20T12:00:00Z"],
    ),
}


@pytest.mark.parametrize(("owner", "seen", "times"), TIMES.values(), ids=TIMES)
def test_a_job_is_created_at_its_time(owner: Json, seen: ObservedCronJob, times: list[str]) -> None:
    assert created(next_move(owner, seen)) == times


def test_the_time_is_remembered_and_the_next_one_is_awaited() -> None:
    move = next_move(cronjob(), at(12, 10))
    assert isinstance(move, Writes)
    job_, remembered = move.writes
    assert isinstance(job_, Create)
    assert isinstance(remembered, Merge)
    assert remembered.change["metadata"]["annotations"] == {LAST_SCHEDULE: "2026-03-20T12:00:00Z"}
    assert move.requeue_after == 50 * 60
    assert job_.obj["metadata"]["labels"] == {"a": "b"}
    again = next_move(cronjob(), at(12, 30))
    assert isinstance(again, Writes)
    assert isinstance(again.writes[0], Create)
    assert again.writes[0].obj["metadata"]["name"] == job_.obj["metadata"]["name"]


def test_a_replaced_job_is_deleted() -> None:
    assert deleted(next_move(cronjob(concurrencyPolicy="Replace"), at(12, 0, job("a")))) == ["a"]


def test_finished_jobs_beyond_the_limits_are_deleted() -> None:
    jobs = [job(f"c{n}", "Complete", n) for n in range(5)] + [
        job("f0", "Failed"),
        job("f1", "Failed", 1),
    ]
    owner = cronjob(last=datetime(2026, 3, 20, 12, tzinfo=UTC))
    assert deleted(next_move(owner, at(12, 5, *jobs))) == ["c0", "c1", "f0"]
    none = cronjob(
        last=datetime(2026, 3, 20, 12, tzinfo=UTC),
        successfulJobsHistoryLimit=9,
        failedJobsHistoryLimit=9,
    )
    assert isinstance(next_move(none, at(12, 5, *jobs)), Done)


def test_the_status_names_active_jobs_and_times() -> None:
    owner = cronjob(last=datetime(2026, 3, 20, 12, tzinfo=UTC))
    status = describe(owner, at(12, 5, job("new", minute=9), job("old", "Complete", 3)))
    assert [a["name"] for a in status["active"]] == ["new"]
    assert status["lastScheduleTime"] == "2026-03-20T12:00:00Z"
    assert status["lastSuccessfulTime"] == "2026-03-20T11:33:00Z"
