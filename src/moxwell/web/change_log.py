"""
Keeps records by key with a bounded, numbered log of their changes, in memory.

Readers follow by number. A reader that asks for a change that is no longer in the log gets a
snapshot instead.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

Record = Mapping[str, Any]
FIRST_LOOK_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class RecordChange:
    """The records that changed and the keys that were removed at one moment."""

    number: int
    at: datetime
    put: Mapping[str, Record] = field(default_factory=dict)
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All records at one moment."""

    number: int
    at: datetime
    records: Mapping[str, Record]


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Nothing changed for a while; the records were looked at last at ``at``."""

    number: int
    at: datetime


class ChangeLog:
    """The current records and the last ``capacity`` changes, of at most ``records`` records."""

    def __init__(self, now: datetime, *, capacity: int = 3600, records: int = 5000) -> None:
        self.name = secrets.token_hex(4)  # numbers of another process's log mean something else
        self._looked_at = now
        self._base = Snapshot(0, now, {})
        self._now = Snapshot(0, now, {})
        self._changes: deque[RecordChange] = deque()
        self._capacity, self._most_records, self._kept_records = capacity, records, 0
        self._changed, self._looked = asyncio.Event(), asyncio.Event()
        self._readers, self._current = 0, False  # current: looked at since somebody follows
        self._requested = asyncio.Event()

    # Readers: the records need to be current only while somebody reads them

    def request(self) -> None:
        """Somebody reads the records now: make them current soon."""
        self._requested.set()

    def take_request(self) -> bool:
        """Whether somebody follows, or has read since the last call."""
        requested = self._readers > 0 or self._requested.is_set()
        self._requested.clear()
        return requested

    async def wait_request(self) -> None:
        """Wait until somebody reads."""
        await self._requested.wait()

    @property
    def since(self) -> datetime:
        """When the log begins."""
        return self._base.at

    @property
    def snapshot(self) -> Snapshot:
        """The current records."""
        return self._now

    def put(self, records: Mapping[str, Record], *, at: datetime) -> RecordChange | None:
        """Replace all records; returns what changed, or None."""
        self._looked_at = at
        self._now = replace(self._now, at=at)
        self._current = self._readers > 0
        self._looked.set()
        self._looked = asyncio.Event()
        old = self._now.records
        changed = {key: record for key, record in records.items() if old.get(key) != record}
        removed = tuple(sorted(old.keys() - records.keys()))
        if not changed and not removed:
            return None
        change = RecordChange(self._now.number + 1, at, changed, removed)
        self._now = Snapshot(change.number, at, dict(records))
        self._append(change)
        self._changed.set()
        self._changed = asyncio.Event()
        return change

    def _append(self, change: RecordChange) -> None:
        self._changes.append(change)
        self._kept_records += len(change.put)
        dropped = 0
        while len(self._changes) - dropped > self._capacity or (
            self._kept_records > self._most_records and dropped < len(self._changes) - 1
        ):
            self._kept_records -= len(self._changes[dropped].put)
            dropped += 1
        if dropped:
            self._base = _apply_all(self._base, [self._changes.popleft() for _ in range(dropped)])

    def snapshot_at(self, at: datetime) -> Snapshot:
        """The records at ``at``, or at the beginning of the log."""
        until = [change for change in self._changes if change.at <= at]
        return _apply_all(self._base, until) if until else self._base

    def changes_after(self, number: int) -> tuple[RecordChange, ...] | None:
        """The changes after ``number``; None if the log does not contain all of them."""
        if number > self._now.number or number < self._base.number:
            return None
        return tuple(change for change in self._changes if change.number > number)

    async def follow(
        self, number: int, *, quiet_seconds: float = 15.0
    ) -> AsyncGenerator[RecordChange | Snapshot | Unchanged, None]:
        """
        Yield changes after ``number`` as they happen; a snapshot if some are lost.

        Without a change for ``quiet_seconds`` it yields that nothing changed. If nobody
        followed before, it waits a moment until the records are looked at again.
        """
        self._readers += 1
        self.request()
        try:
            if not self._current:
                with suppress(TimeoutError):
                    async with asyncio.timeout(FIRST_LOOK_SECONDS):
                        await self._looked.wait()
            async for item in self._follow(number, quiet_seconds):
                yield item
        finally:
            self._readers -= 1
            self._current = self._current and self._readers > 0

    async def _follow(
        self, number: int, quiet_seconds: float
    ) -> AsyncGenerator[RecordChange | Snapshot | Unchanged, None]:
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
                try:
                    async with asyncio.timeout(quiet_seconds):
                        await waiting.wait()
                except TimeoutError:
                    yield Unchanged(number, self._looked_at)


def _apply_all(snapshot: Snapshot, changes: Sequence[RecordChange]) -> Snapshot:
    records = dict(snapshot.records)
    for change in changes:
        records.update(change.put)
        for key in change.removed:
            records.pop(key, None)
    return Snapshot(changes[-1].number, changes[-1].at, records)
