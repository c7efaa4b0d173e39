"""``moxwell events``: which events, in which order, as which rows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from moxwell.cli import events

NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)


def event(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "e", "creationTimestamp": "2026-03-20T11:00:00Z"},
        "involvedObject": {"kind": kind, "name": name},
        "type": "Normal",
        "reason": "Placed",
        "message": "placed on one/pve1\n",
        **fields,
    }


OLD = event("Machine", "a", lastTimestamp="2026-03-20T11:59:00Z", count=3)
NEW = event("Pod", "a", eventTime="2026-03-20T11:59:30.000000Z")
SERIES = event("Machine", "b", series={"count": 7, "lastObservedTime": "2026-03-20T11:59:59.5Z"})
PLAIN = event("Machine", "c")


@pytest.mark.parametrize(
    ("kind", "name", "found"),
    [
        ("", "", [PLAIN, OLD, NEW, SERIES]),
        ("Machine", "", [PLAIN, OLD, SERIES]),
        ("Machine", "a", [OLD]),
        ("", "a", [OLD, NEW]),
        ("Node", "", []),
    ],
)
def test_events_are_those_of_the_object_the_oldest_first(
    kind: str, name: str, found: list[dict[str, Any]]
) -> None:
    assert events.ordered([SERIES, NEW, OLD, PLAIN], kind, name) == found


def test_a_row_tells_how_often_and_when() -> None:
    assert events.row(OLD, NOW) == {
        "last seen": "60s (x3)",
        "type": "Normal",
        "reason": "Placed",
        "object": "machine/a",
        "message": "placed on one/pve1",
    }
    assert events.row(SERIES, NOW)["last seen"] == "0s (x7)"


@pytest.mark.parametrize(
    ("ago", "shown"),
    [
        (timedelta(seconds=119), "119s"),
        (timedelta(minutes=3), "3m"),
        (timedelta(hours=2), "2h"),
        (timedelta(days=5), "5d"),
        (timedelta(seconds=-5), "0s"),
    ],
)
def test_ages_are_short(ago: timedelta, shown: str) -> None:
    assert events.age((NOW - ago).isoformat().replace("+00:00", "Z"), NOW) == shown


def test_a_time_that_is_none_is_unknown() -> None:
    assert events.age("", NOW) == "<unknown>"
