"""
Cron schedules as NodePool budgets use them: five fields in UTC, or ``@daily`` and its like. Pure.

The dialect is that of the library that Karpenter uses: names of months and days, ``?`` for ``*``,
``5/15`` for ``5-59/15``, days of the week from 0 (Sunday) to 6. If day of month and day of week are
both restricted, a day that matches either is a hit.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from moxwell.errors import Invalid

_MINUTE = timedelta(minutes=1)
_YEARS = 5  # how far ahead a hit is looked for
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class InvalidSchedule(Invalid):
    """The schedule of a disruption budget is malformed."""

    reason = "InvalidSchedule"


@dataclass(frozen=True, slots=True)
class CronField:
    """The numbers that a field allows; ``star`` if it does not restrict."""

    numbers: frozenset[int]
    star: bool = False


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """When a schedule hits."""

    minute: CronField
    hour: CronField
    day: CronField
    month: CronField
    weekday: CronField

    def next_after(self, moment: float) -> float | None:
        """The first hit later than a time in seconds since 1970; None if there is none."""
        at = datetime.fromtimestamp(moment, UTC).replace(second=0, microsecond=0) + _MINUTE
        last = at.year + _YEARS
        while at.year <= last:
            if at.month not in self.month.numbers:
                at = (at.replace(day=1) + timedelta(days=32)).replace(day=1, hour=0, minute=0)
            elif not self._hits_day(at):
                at = at.replace(hour=0, minute=0) + timedelta(days=1)
            elif at.hour not in self.hour.numbers:
                at = at.replace(minute=0) + timedelta(hours=1)
            elif at.minute not in self.minute.numbers:
                at += _MINUTE
            else:
                return at.timestamp()
        return None

    def _hits_day(self, at: datetime) -> bool:
        by_day = at.day in self.day.numbers
        by_weekday = at.isoweekday() % 7 in self.weekday.numbers
        if self.day.star or self.weekday.star:
            return by_day and by_weekday
        return by_day or by_weekday


def cron_schedule(text: str) -> CronSchedule:
    """Parse a schedule."""
    fields = _DESCRIPTORS.get(text.strip(), text).split()
    if len(fields) != 5:
        raise InvalidSchedule(
            f"the schedule {text!r} has {len(fields)} fields: write minute, hour, day of month, "
            "month and day of week, or @hourly, @daily, @weekly, @monthly or @yearly"
        )
    minute, hour, day, month, weekday = fields
    return CronSchedule(
        _field(minute, 0, 59),
        _field(hour, 0, 23),
        _field(day, 1, 31),
        _field(month, 1, 12, _MONTHS),
        _field(weekday, 0, 6, _DAYS),
    )


def _field(text: str, least: int, most: int, names: list[str] | None = None) -> CronField:
    numbers: set[int] = set()
    star = False
    for part in filter(None, text.split(",")):
        span, every = _range(part, least, most, names or [])
        numbers |= set(span)
        star = star or every
    return CronField(frozenset(numbers), star)


def _range(part: str, least: int, most: int, names: list[str]) -> tuple[range, bool]:
    bounds, _, step_text = part.partition("/")
    low, _, high = bounds.partition("-")
    step = _number(step_text, 0, []) if "/" in part else 1
    star = low in ("*", "?")
    start = least if star else _number(low, least, names)
    end = _number(high, least, names) if "-" in bounds and not star else start
    if star or ("/" in part and "-" not in bounds):
        end = most
    if step == 0 or not least <= start <= end <= most:
        raise InvalidSchedule(
            f"{part!r} in a schedule is outside {least} to {most}, or its step is 0"
        )
    return range(start, end + 1, step), star and step == 1


def _number(text: str, least: int, names: list[str]) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + least
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise InvalidSchedule(f"{text!r} in a schedule is not a number")
    return int(text)
