"""
When a CronJob creates its next Job, and which finished Jobs are deleted. Pure.

The last scheduled time is an annotation of the CronJob, because finished Jobs are deleted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from moxwell.embedded.controllermanager.resources import CRON_JOBS, JOBS
from moxwell.embedded.controllermanager.workloads import owner_reference
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Create, Delete, Merge, Writes
from moxwell.scheduling.disruption.cron import CronSchedule, cron_schedule

Json = dict[str, Any]
LAST_SCHEDULE = "moxwell.dev/last-schedule-time"
SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
WINDOWS = (3600.0, 86_400.0, 31 * 86_400.0)  # how far back a missed run is looked for


@dataclass(frozen=True, slots=True)
class ObservedCronJob:
    """The Jobs of a CronJob, and the time."""

    jobs: tuple[Json, ...]
    now: datetime


def next_move(owner: Json, seen: ObservedCronJob) -> WriteMove:
    """Create the Job of the latest scheduled time, delete Jobs beyond the history limits."""
    spec, times = owner["spec"], _Times.of(owner)
    now, after = seen.now.timestamp(), times.after(seen.now.timestamp())
    writes: list[Any] = [*_old(owner, seen.jobs)]
    due = None if spec.get("suspend") else times.latest(_last(owner), now)
    if due is not None and _is_in_time(spec, due, now):
        active = [j for j in seen.jobs if not finished(j)]
        policy = spec.get("concurrencyPolicy", "Allow")
        if policy == "Forbid" and active:
            return _result(writes, after)  # tried again when the Job ends
        writes += [_delete(j) for j in active] if policy == "Replace" else []
        writes += [Create(_job(owner, due), JOBS), _remember(owner, due)]
    return _result(writes, after)


def _result(writes: Sequence[Any], after: float | None) -> WriteMove:
    return Writes(tuple(writes), requeue_after=after) if writes else Done(requeue_after=after)


@dataclass(frozen=True, slots=True)
class _Times:
    """The scheduled times in the time zone of a CronJob."""

    schedule: CronSchedule
    zone: ZoneInfo

    @classmethod
    def of(cls, owner: Json) -> "_Times":
        spec = owner["spec"]
        return cls(cron_schedule(spec["schedule"]), ZoneInfo(spec.get("timeZone") or "UTC"))

    def next(self, moment: float) -> float | None:
        local = datetime.fromtimestamp(moment, self.zone).replace(tzinfo=UTC).timestamp()
        found = self.schedule.next_after(local)
        if found is None:
            return None
        wall = datetime.fromtimestamp(found, UTC).replace(tzinfo=self.zone)
        return wall.timestamp()

    def after(self, now: float) -> float | None:
        found = self.next(now)
        return None if found is None else max(0.0, found - now)

    def latest(self, last: float, now: float) -> float | None:
        """The latest scheduled time after ``last`` and not after ``now``."""
        for window in (*WINDOWS, now - last):
            start = max(last, now - window)
            found, hit = None, self.next(start)
            while hit is not None and hit <= now:
                found, hit = hit, self.next(hit)
            if found is not None or start == last:
                return found
        return None


def _last(owner: Json) -> float:
    meta = owner["metadata"]
    text = (meta.get("annotations") or {}).get(LAST_SCHEDULE) or meta["creationTimestamp"]
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _is_in_time(spec: Json, due: float, now: float) -> bool:
    deadline = spec.get("startingDeadlineSeconds")
    return deadline is None or now - due <= deadline


def _text(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _remember(owner: Json, due: float) -> Merge:
    meta = owner["metadata"]
    change = {"metadata": {"annotations": {LAST_SCHEDULE: _text(due)}}}
    return Merge(CRON_JOBS, meta["name"], change, meta["namespace"])


def _job(owner: Json, due: float) -> Json:
    """The Job of a scheduled time; its name is the same however often it is created."""
    meta, template = owner["metadata"], owner["spec"]["jobTemplate"]
    given = template.get("metadata") or {}
    reference = owner_reference({**owner, "apiVersion": "batch/v1", "kind": "CronJob"})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{meta['name'][:52]}-{int(due // 60)}",
            "namespace": meta["namespace"],
            "labels": dict(given.get("labels") or {}),
            "annotations": {**(given.get("annotations") or {}), SCHEDULED_AT: _text(due)},
            "ownerReferences": [reference],
        },
        "spec": template["spec"],
    }


def finished(job: Json) -> str:
    """``Complete`` or ``Failed`` of a Job that has ended, else empty."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    ended = [c["type"] for c in conditions if c["status"] == "True"]
    return next((kind for kind in ended if kind in ("Complete", "Failed")), "")


def _old(owner: Json, jobs: Sequence[Json]) -> list[Delete]:
    """Deletions of finished Jobs beyond the limits, the oldest first."""
    limits = {
        "Complete": owner["spec"].get("successfulJobsHistoryLimit", 3),
        "Failed": owner["spec"].get("failedJobsHistoryLimit", 1),
    }
    found: list[Delete] = []
    for kind, limit in limits.items():
        ended = sorted((j for j in jobs if finished(j) == kind), key=_created)
        found += [_delete(job) for job in ended[: max(0, len(ended) - limit)]]
    return found


def _created(job: Json) -> str:
    return str(job["metadata"]["creationTimestamp"])


def _delete(job: Json) -> Delete:
    meta = job["metadata"]
    return Delete(JOBS, meta["name"], meta["namespace"], meta["uid"])


def describe(owner: Json, seen: ObservedCronJob) -> Json:
    """The active Jobs, and when the last ones were scheduled and successful."""
    active = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job["metadata"]["name"],
            "namespace": job["metadata"]["namespace"],
            "uid": job["metadata"]["uid"],
        }
        for job in sorted(seen.jobs, key=_created)
        if not finished(job)
    ]
    status: Json = {"active": active}
    if last := (owner["metadata"].get("annotations") or {}).get(LAST_SCHEDULE):
        status["lastScheduleTime"] = last
    ends = [(j.get("status") or {}).get("completionTime") for j in seen.jobs]
    if successful := max(filter(None, ends), default=""):
        status["lastSuccessfulTime"] = successful
    return status
