"""Durations of node pools and node claims: Go durations and Never. Pure."""

from datetime import datetime, timedelta

from moxwell.scheduling.packing.rescheduling import duration_seconds

NEVER = "Never"


def seconds_or_never(text: str) -> float | None:
    """The seconds of a duration; None for Never. The schema refuses anything else."""
    return None if text == NEVER else duration_seconds(text)


def after(start: datetime | None, seconds: float | None) -> datetime | None:
    """The time so many seconds after another; None without either."""
    if start is None or seconds is None:
        return None
    try:
        return start + timedelta(seconds=seconds)
    except OverflowError:  # a duration beyond the year 9999
        return None


def until(now: datetime, moment: datetime | None) -> float | None:
    """The seconds until a moment, at least 0; None without one."""
    return None if moment is None else max(0.0, (moment - now).total_seconds())


def soonest(*seconds: float | None) -> float | None:
    """The least of the given numbers."""
    given = [s for s in seconds if s is not None]
    return min(given) if given else None
