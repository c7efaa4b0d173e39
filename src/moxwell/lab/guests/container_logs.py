"""
The log of a container on a simulated node: a first line that says so, then a line every 10 s.

Lines are computed from the pod's status and the time, so no log is stored and a log survives a
restart of the lab. As with the log rotation of a kubelet, old lines are not kept for ever.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from moxwell.errors import Invalid

Json = Mapping[str, Any]
EVERY = timedelta(seconds=10)
MAX_LINES = 5_000


@dataclass(frozen=True, slots=True)
class ContainerLogLine:
    """One line and its time."""

    time: datetime
    text: str

    def render(self, *, timestamps: bool) -> bytes:
        stamp = f"{self.time:%Y-%m-%dT%H:%M:%S.%f}000Z " if timestamps else ""
        return f"{stamp}{self.text}\n".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The options of a log request."""

    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: datetime | None = None
    limit_bytes: int | None = None


def container_status(pod: Json, container: str) -> Json:
    """The status of a container; empty before the kubelet wrote one."""
    rows = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((row for row in rows if row.get("name") == container), {})


def log_problem(pod: Json, container: str, *, previous: bool) -> str:
    """Why a container has no log, in the words of a kubelet; empty if it has one."""
    name, state = pod["metadata"]["name"], container_status(pod, container).get("state") or {}
    if previous:
        return f'previous terminated container "{container}" in pod "{name}" not found'
    if "running" in state or "terminated" in state:
        return ""
    reason = (state.get("waiting") or {}).get("reason", "ContainerCreating")
    if reason == "ImagePullBackOff":
        reason = "trying and failing to pull image"
    return f'container "{container}" in pod "{name}" is waiting to start: {reason}'


def log_lines(pod: Json, container: str, now: datetime) -> Iterator[ContainerLogLine]:
    """The kept lines of a container's log until ``now``."""
    status = container_status(pod, container)
    state = status.get("state") or {}
    running, ended = state.get("running") or {}, state.get("terminated") or {}
    began = _time(running.get("startedAt") or ended.get("startedAt") or pod["status"]["startTime"])
    end = _time(ended["finishedAt"]) if "finishedAt" in ended else now
    meta, image = pod["metadata"], status.get("image", "")
    count = max(0, (end - began) // EVERY)
    first = max(0, count + 1 - MAX_LINES)
    if first == 0:
        where = f"{meta['namespace']}/{meta['name']}"
        about = f"simulated log: the lab does not run {image} (container {container} of {where})"
        yield ContainerLogLine(began, about)
    for number in range(max(1, first), count + 1):
        seconds = int(number * EVERY.total_seconds())
        yield ContainerLogLine(
            began + number * EVERY, f"simulated log: {container} runs since {seconds} s"
        )
    if ended:
        code = ended.get("exitCode", 0)
        yield ContainerLogLine(end, f"simulated log: {container} finished with exit code {code}")


def selected(
    pod: Json, container: str, options: LogOptions, now: datetime
) -> list[ContainerLogLine]:
    """The lines that a request selects; raises Invalid if the container has no log."""
    if problem := log_problem(pod, container, previous=options.previous):
        raise Invalid(problem)
    lines = list(log_lines(pod, container, now))
    if options.since is not None:
        lines = [line for line in lines if line.time >= options.since]
    if options.tail is not None:
        lines = lines[len(lines) - min(options.tail, len(lines)) :]
    return lines


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)
