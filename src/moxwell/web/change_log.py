"""
Records by key, their changes numbered, and a bounded past.

``put`` takes the whole new picture and keeps only what differs: one :class:`Change` with the keys
that are new or different and those that are gone. Readers follow by number; one that has fallen out
of the past gets the whole picture instead. The past is in memory and says since when it reaches.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """What became different at one moment."""

    number: int
    at: datetime
    put: Mapping[str, Record] = field(default_factory=dict)
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything at one moment."""

    number: int
    at: datetime
    records: Mapping[str, Record]


class Ring:
    """The current picture and the last ``capacity`` changes that led to it."""

    def __init__(self, now: datetime, *, capacity: int = 3600) -> None:
        self._base = Picture(0, now, {})
        self._now = Picture(0, now, {})
        self._past: deque[Change] = deque()
        self._capacity = capacity
        self._changed = asyncio.Event()

    @property
    def since(self) -> datetime:
        """How far back the past reaches."""
        return self._base.at

    @property
    def picture(self) -> Picture:
        """Everything as it is now."""
        return self._now

    def put(self, records: Mapping[str, Record], *, at: datetime) -> Change | None:
        """Replace the picture; returns what differs, or None."""
        old = self._now.records
        fresh = {key: record for key, record in records.items() if old.get(key) != record}
        gone = tuple(sorted(old.keys() - records.keys()))
        if not fresh and not gone:
            return None
        change = Change(self._now.number + 1, at, fresh, gone)
        self._now = Picture(change.number, at, dict(records))
        self._remember(change)
        self._changed.set()
        self._changed = asyncio.Event()
        return change

    def _remember(self, change: Change) -> None:
        self._past.append(change)
        while len(self._past) > self._capacity:
            self._base = _apply(self._base, self._past.popleft())

    def picture_at(self, at: datetime) -> Picture:
        """Everything as it was at ``at``, or as far back as the past reaches."""
        picture = self._base
        for change in self._past:
            if change.at > at:
                break
            picture = _apply(picture, change)
        return picture

    def changes_after(self, number: int) -> tuple[Change, ...] | None:
        """The changes after ``number``; None if the past does not reach back to it."""
        if number > self._now.number or number < self._base.number:
            return None
        return tuple(change for change in self._past if change.number > number)

    async def follow(self, number: int) -> AsyncIterator[Change | Picture]:
        """Changes after ``number`` as they come; a whole picture where some are lost."""
        while True:
            waiting = self._changed
            missed = self.changes_after(number)
            if missed is None:
                yield self._now
                number = self._now.number
            for change in missed or ():
                yield change
                number = change.number
            if number == self._now.number:
                await waiting.wait()


def _apply(picture: Picture, change: Change) -> Picture:
    records = {**picture.records, **change.put}
    for key in change.gone:
        records.pop(key, None)
    return Picture(change.number, change.at, records)
