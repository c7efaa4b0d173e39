"""
Calendar events of schedules, as Proxmox's own parser reads them: days, a date and a time.

They look like those of systemd, but without ``~``, and the hour may be left out: ``*/15`` is every
quarter of an hour. Times are UTC, which the simulated nodes use.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from moxwell.lab.proxmox.errors import FormatError

Values = frozenset[int] | None  # None: every value

_MAX_DAYS = 3 * 366  # that are searched for the next event
_DAY_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAYS = {name[:length]: n for n, name in enumerate(_DAY_NAMES) for length in (3, len(name))}
_NAMED = {
    "minutely": "*:*",
    "hourly": "*:00",
    "daily": "00:00",
    "weekly": "mon 00:00",
    "monthly": "*-*-1 00:00",
    "yearly": "*-1-1 00:00",
    "annually": "*-1-1 00:00",
    "quarterly": "*-1,4,7,10-1 00:00",
    "semiannually": "*-1,7-1 00:00",
    "semi-annually": "*-1,7-1 00:00",
}
_VALUE = re.compile(r"(\d+)(?:\.\.(\d+))?(?:/(\d+))?")
_LIST = r"[*\d][\d.,/*]*"
_DATE = re.compile(rf"(?:({_LIST})-)?({_LIST})-({_LIST}) *")
_TIME = re.compile(rf"(?:({_LIST}):)?({_LIST})(?::({_LIST}))?")
_WORDS = re.compile(r"[a-z]+(?:\.\.[a-z]+)?(?:,[a-z]+(?:\.\.[a-z]+)?)* *", re.IGNORECASE)
_YEARS, _MONTHS, _MONTH_DAYS, _HOURS, _SIXTY = (0, 2200), (1, 13), (1, 32), (0, 24), (0, 60)


@dataclass(frozen=True, slots=True)
class CalendarEvent:
    """The values at which an event occurs."""

    days: Values = None
    year: Values = None
    month: Values = None
    day: Values = None
    hour: Values = frozenset({0})
    minute: Values = frozenset({0})
    second: Values = frozenset({0})

    def next_after(self, last: int) -> int | None:
        """The first occurrence after a time; None if there is none in three years."""
        first = datetime.fromtimestamp(last + 1, UTC)
        if self.year is not None and first.year not in self.year:
            later = [year for year in self.year if year > first.year]
            if not later:
                return None
            first = datetime(min(later), 1, 1, tzinfo=UTC)
        for offset in range(_MAX_DAYS):
            on = first.date() + timedelta(days=offset)
            if self._is_on(on):
                start = (first.hour, first.minute, first.second) if offset == 0 else (0, 0, 0)
                for hour, minute, second in self._times():
                    if (hour, minute, second) >= start:
                        found = datetime(
                            on.year, on.month, on.day, hour, minute, second, tzinfo=UTC
                        )
                        return int(found.timestamp())
        return None

    def _is_on(self, on: date) -> bool:
        wanted = (
            (self.days, on.weekday()),
            (self.year, on.year),
            (self.month, on.month),
            (self.day, on.day),
        )
        return all(values is None or value in values for values, value in wanted)

    def _times(self) -> Iterator[tuple[int, int, int]]:
        """The times of a day in their order."""
        for hour in _ordered(self.hour, _HOURS):
            for minute in _ordered(self.minute, _SIXTY):
                for second in _ordered(self.second, _SIXTY):
                    yield hour, minute, second


def _ordered(values: Values, bounds: tuple[int, int]) -> list[int]:
    return list(range(*bounds)) if values is None else sorted(values)


def check(value: str) -> None:
    """Raise if a text is no calendar event."""
    try:
        parse(value)
    except FormatError as error:
        raise FormatError(f"invalid calendar event '{value}' - {error}") from None


def parse(value: str) -> CalendarEvent:
    """Parse an event; the message of an error names where it begins."""
    text = value.strip()
    if not text:
        raise FormatError("unable to parse calendar event - event is empty\n")
    text = text.removesuffix("UTC").rstrip(" ")
    rest = _NAMED.get(text, text)
    days, rest = _days(rest)
    found_date, rest = _match(_DATE, rest, (_YEARS, _MONTHS, _MONTH_DAYS))
    found_time, rest = _match(_TIME, rest, (_HOURS, _SIXTY, _SIXTY))
    if days is None and found_date is None and found_time is None:
        raise _error(rest, 'Context("date or time specification")')
    if rest:
        raise _error(rest, "Nom(Eof)")
    year, month, day = found_date or (None, None, None)
    hour, minute, second = found_time or (frozenset({0}),) * 3
    return CalendarEvent(days, year, month, day, hour, minute, second)


def _error(rest: str, why: str) -> FormatError:
    return FormatError(f"unable to parse calendar event at '{rest}' - {why}\n")


def _days(text: str) -> tuple[Values, str]:
    found = _WORDS.match(text)
    if found is None:
        return None, text
    days: set[int] = set()
    for part in found[0].strip().lower().split(","):
        names = part.split("..")
        for name in names:
            if name not in _DAYS:
                raise _error(name, 'Context("weekday")')
        first, last = _DAYS[names[0]], _DAYS[names[-1]]
        days |= {day % 7 for day in range(first, last + 1 if first <= last else last + 8)}
    return frozenset(days), text[found.end() :]


def _match(
    pattern: re.Pattern[str], text: str, bounds: tuple[tuple[int, int], ...]
) -> tuple[tuple[Values, ...] | None, str]:
    """The values of a date or time, and the rest; nothing is taken if a value is out of bounds."""
    found = pattern.match(text)
    if found is None:
        return None, text
    values = [_values(part, at) for part, at in zip(found.groups(), bounds, strict=True)]
    if pattern is _TIME and found[3] is None:
        values[2] = frozenset({0})
    known = tuple(None if value == frozenset() else value for value in values)
    return (None, text) if None in values else (known, text[found.end() :])


def _values(text: str | None, bounds: tuple[int, int]) -> Values:
    """The values of a list; an empty set is every value, None is no such list."""
    start, end = bounds
    if text is None or text == "*":
        return frozenset()
    if text.startswith("*/"):
        text = f"{start}/{text[2:]}"
    found: set[int] = set()
    for part in text.split(","):
        match = _VALUE.fullmatch(part)
        if match is None:
            return None
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 0)
        if not first <= last < end or step >= end:
            return None
        last = end - 1 if match[3] and not match[2] else last
        found |= set(range(first, last + 1, step or 1)) if match[2] or step else {first}
    return frozenset(found)
