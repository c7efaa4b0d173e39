"""Logs of simulated containers: which lines, and why there are none."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from moxwell.errors import Invalid
from moxwell.lab.guests.container_logs import LogOptions, selected

START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = START + timedelta(seconds=35)


def pod(state: dict[str, Any]) -> dict[str, Any]:
    status = {"name": "web", "image": "nginx", "state": state}
    return {
        "metadata": {"name": "web-1", "namespace": "shop"},
        "status": {"startTime": "2026-01-01T00:00:00Z", "containerStatuses": [status]},
    }


RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
ENDED = {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:05Z"}}
FIRST = "simulated log: the lab does not run nginx (container web of shop/web-1)"
RUNS = [f"simulated log: web runs since {n} s" for n in (10, 20, 30)]

LINES: dict[str, tuple[dict[str, Any], LogOptions, list[str]]] = {
    "everything": (RUNNING, LogOptions(), [FIRST, *RUNS]),
    "the last line": (RUNNING, LogOptions(tail=1), RUNS[-1:]),
    "more than there are": (RUNNING, LogOptions(tail=99), [FIRST, *RUNS]),
    "no line": (RUNNING, LogOptions(tail=0), []),
    "since a time": (RUNNING, LogOptions(since=START + timedelta(seconds=15)), RUNS[1:]),
    "an ended container": (
        ENDED,
        LogOptions(),
        [FIRST, "simulated log: web finished with exit code 0"],
    ),
}


@pytest.mark.parametrize(("state", "options", "lines"), LINES.values(), ids=LINES)
def test_lines_of_a_log(state: dict[str, Any], options: LogOptions, lines: list[str]) -> None:
    assert [line.text for line in selected(pod(state), "web", options, NOW)] == lines


REFUSED: dict[str, tuple[dict[str, Any], bool, str]] = {
    "no previous container": (RUNNING, True, "previous terminated container"),
    "no image": (
        {"waiting": {"reason": "ImagePullBackOff"}},
        False,
        "is waiting to start: trying and failing to pull image",
    ),
    "not started": ({}, False, "is waiting to start: ContainerCreating"),
}


@pytest.mark.parametrize(("state", "previous", "text"), REFUSED.values(), ids=REFUSED)
def test_a_container_without_a_log(state: dict[str, Any], previous: bool, text: str) -> None:
    with pytest.raises(Invalid, match=text):
        selected(pod(state), "web", LogOptions(previous=previous), NOW)


def test_old_lines_are_not_kept() -> None:
    lines = selected(pod(RUNNING), "web", LogOptions(), START + timedelta(days=30))
    assert len(lines) == 5_000
    assert lines[-1].text.endswith(f"{30 * 86400} s")


def test_a_line_with_its_time() -> None:
    line = selected(pod(RUNNING), "web", LogOptions(tail=1), NOW)[0]
    assert line.render(timestamps=True).startswith(b"2026-01-01T00:00:30.000000000Z simulated")
