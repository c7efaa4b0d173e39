"""
Watches: who is told of which change, and what a watcher that was away may still be told.

Each stored kind has a feed: its recent changes and its present watchers. A watcher resumes from
a revision the feed still reaches, or is told 410 and lists again. A change is rendered once per
form (version, table, …) and the bytes are shared by all watchers of that form. A watcher that
does not read is cut off rather than waited for; it resumes from its last revision.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from moxwell.clock import Clock
from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.object_cache import ObjectChange, ObjectRecord, decode, encode

Matches = Callable[[ObjectRecord], bool]
HISTORY, BYTES = 4096, 32 * 1024 * 1024  # what a feed remembers at most
MAX_BUFFERED_BYTES = 20_000
CHUNK = 64 * 1024
BOOKMARK_SECONDS = 60.0


class WatchRepresentation(Protocol):
    """How a watcher wants objects written: ``key`` tells equal forms."""

    key: str

    def body(self, record: ObjectRecord) -> bytes:
        """The object's JSON."""
        ...

    def bookmark(self, revision: int, *, initial_end: bool) -> bytes:
        """The object of a bookmark."""
        ...


def line(kind: str, body: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + body + b"}\n"


class Watch:
    """One watch request: a buffer between the feed and the reader."""

    def __init__(self, matches: Matches, representation: WatchRepresentation) -> None:
        self.matches, self.representation = matches, representation
        self.buffer: deque[bytes] = deque()
        self.closed = False
        self._wake = asyncio.Event()

    def send(self, change: ObjectChange) -> None:
        """Put the change's line into the buffer, if it concerns this watcher."""
        made = _event(change, self)
        if made is not None:
            self.push(made)

    def push(self, made: bytes) -> None:
        if len(self.buffer) >= MAX_BUFFERED_BYTES:
            self.closed = True
        else:
            self.buffer.append(made)
        self._wake.set()

    def end(self) -> None:
        self.closed = True
        self._wake.set()

    def read_chunk(self) -> bytes:
        """What waits, up to a chunk."""
        parts, size = [], 0
        while self.buffer and size < CHUNK:
            parts.append(self.buffer.popleft())
            size += len(parts[-1])
        return b"".join(parts)

    async def wait(self, seconds: float) -> bool:
        """Wait for something to take; False when the time is over."""
        self._wake.clear()
        if self.buffer or self.closed:
            return True
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True


def _event(change: ObjectChange, watcher: Watch) -> bytes | None:
    now = not change.deleted and watcher.matches(change.record)
    before = change.previous is not None and watcher.matches(change.previous)
    if not now and not before:
        return None
    kind = "DELETED" if not now else "MODIFIED" if before else "ADDED"
    key = (kind, watcher.representation.key)
    made = change.lines.get(key)
    if made is None:
        made = change.lines[key] = line(
            kind, watcher.representation.body(_record_at(change, now=now))
        )
    return made


def _record_at(change: ObjectChange, *, now: bool) -> ObjectRecord:
    """Whoever no longer selects an object is shown how it was, at the new revision."""
    if now or change.deleted or change.previous is None:
        return change.record
    obj = decode(change.previous.body)
    obj["metadata"]["resourceVersion"] = str(change.record.revision)
    return ObjectRecord(change.record.group_resource, change.record.revision, encode(obj))


class WatchCache:
    """The changes of one stored kind."""

    def __init__(self, floor: int) -> None:
        self.floor = floor  # changes up to here are forgotten
        self.history: deque[ObjectChange] = deque()
        self.watchers: set[Watch] = set()
        self._bytes = 0

    def append(self, change: ObjectChange) -> None:
        self.history.append(change)
        self._bytes += len(change.record.body)
        while len(self.history) > HISTORY or (self._bytes > BYTES and len(self.history) > 1):
            gone = self.history.popleft()
            self.floor = gone.record.revision
            self._bytes -= len(gone.record.body)

    def publish(self, change: ObjectChange) -> None:
        self.append(change)
        for watcher in tuple(self.watchers):
            if watcher.closed:
                self.watchers.discard(watcher)
            else:
                watcher.send(change)
        change.lines.clear()  # shared by those who watched; a latecomer has its own made

    def replay(self, watcher: Watch, after: int) -> None:
        """Tell a returning watcher what it missed; raises 410 when that is no longer known."""
        if after < self.floor:
            raise status_errors.resource_expired(
                f"too old resource version: {after} ({self.floor + 1})"
            )
        for change in self.history:
            if change.record.revision > after:
                watcher.send(change)


class WatchCaches:
    """All feeds, and the stream a watch request is answered with."""

    def __init__(self, clock: Clock, revision: Callable[[], int]) -> None:
        self._clock, self._revision = clock, revision
        self._watch_caches: dict[str, WatchCache] = {}
        self._floor = 2

    def start(self, floor: int) -> None:
        """Nothing at or before ``floor`` is known."""
        self._floor = max(floor, 2)  # nobody ever saw an earlier revision

    def watch_cache(self, group_resource: str) -> WatchCache:
        if group_resource not in self._watch_caches:
            self._watch_caches[group_resource] = WatchCache(self._floor)
        return self._watch_caches[group_resource]

    def publish(self, change: ObjectChange) -> None:
        self.watch_cache(change.record.group_resource).publish(change)

    def end(self, group_resource: str | None = None) -> None:
        """End the watches of a kind that is no longer served (or all)."""
        for name, watch_cache in self._watch_caches.items():
            if group_resource is None or name == group_resource:
                for watcher in tuple(watch_cache.watchers):
                    watcher.end()

    async def stream(
        self, group_resource: str, watcher: Watch, *, seconds: float, bookmarks: bool
    ) -> AsyncIterator[bytes]:
        """Lines, in chunks, until the time is over or the watcher is cut off."""
        ends = self._clock.monotonic() + seconds
        marks = self._clock.monotonic() + BOOKMARK_SECONDS
        try:
            while not watcher.closed or watcher.buffer:
                if chunk := watcher.read_chunk():
                    yield chunk
                    continue
                await watcher.wait(min(ends, marks) - self._clock.monotonic())
                now = self._clock.monotonic()
                if not watcher.buffer and now >= ends:
                    return
                if now >= marks:
                    marks = now + BOOKMARK_SECONDS
                    if bookmarks and not watcher.buffer:
                        body = watcher.representation.bookmark(self._revision(), initial_end=False)
                        yield line("BOOKMARK", body)
        finally:
            self.watch_cache(group_resource).watchers.discard(watcher)
