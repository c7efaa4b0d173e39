"""
Watch caches: the recent changes of each group resource and its watches.

A watch resumes from a revision in the history, or gets 410 and lists again. As in kube-apiserver
the history holds the changes of the last 75 s, and of longer for a resource that changes rarely. A
change is rendered once per representation and the bytes are shared by all watches. A watch whose
client does not read is ended, and resumes from its last revision.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Protocol

from moxwell.clock import Clock
from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.object_cache import ObjectRecord, StoredChange, decode, encode

Matches = Callable[[ObjectRecord], bool]
HISTORY, BYTES = 4096, 32 * 1024 * 1024  # the limits of a watch cache's history
FRESH_SECONDS, SHORTEST_HISTORY = 75.0, 100  # older changes beyond so many are dropped
MAX_BUFFERED_BYTES = 16 * 1024 * 1024  # of one watch whose client does not read
CHUNK = 64 * 1024
BOOKMARK_SECONDS = 60.0


class WatchRepresentation(Protocol):
    """The representation of objects in a watch; ``key`` identifies equal ones."""

    key: str

    def body(self, record: ObjectRecord) -> bytes:
        """Encode the object."""
        ...

    def bookmark(self, revision: int, *, initial_end: bool) -> bytes:
        """Encode the object of a bookmark."""
        ...


def line(kind: str, body: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + body + b"}\n"


class WatchBuffer:
    """One watch: a buffer between the watch cache and the response."""

    def __init__(self, matches: Matches, representation: WatchRepresentation) -> None:
        self.matches, self.representation = matches, representation
        self.buffer: deque[bytes] = deque()
        self.closed = False
        self._buffered = 0
        self._backlog: Iterator[bytes] = iter(())
        self._wake = asyncio.Event()

    def send(self, change: StoredChange) -> None:
        """Buffer the event of a change, if the watch selects the object."""
        made = _event(change, self)
        if made is not None:
            self.push(made)

    def start_with(self, backlog: Iterable[bytes]) -> None:
        """Send these events before the buffered ones; each is rendered when the client reads."""
        self._backlog = iter(backlog)
        self._fill()

    def _fill(self) -> None:
        """Move the next event of the backlog to the front of the buffer."""
        made = next(self._backlog, None)
        if made is not None:
            self.buffer.appendleft(made)
            self._buffered += len(made)

    def push(self, made: bytes) -> None:
        if self._buffered + len(made) > MAX_BUFFERED_BYTES and self.buffer:
            self.end()
            self.buffer.clear()  # the client lists again
            self._backlog = iter(())
            return
        self.buffer.append(made)
        self._buffered += len(made)
        self._wake.set()

    def end(self) -> None:
        self.closed = True
        self._wake.set()

    def read_chunk(self) -> bytes:
        """Return the buffered bytes, up to a chunk."""
        parts, size = [], 0
        while self.buffer and size < CHUNK:
            parts.append(self.buffer.popleft())
            size += len(parts[-1])
            self._fill()
        self._buffered -= size
        return b"".join(parts)

    async def wait(self, seconds: float) -> bool:
        """Wait for buffered bytes; False after a timeout."""
        self._wake.clear()
        if self.buffer or self.closed:
            return True
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True


def _event(change: StoredChange, stream: WatchBuffer, *, shared: bool = True) -> bytes | None:
    now = not change.deleted and stream.matches(change.record)
    before = change.previous is not None and stream.matches(change.previous)
    if not now and not before:
        return None
    kind = "DELETED" if not now else "MODIFIED" if before else "ADDED"
    key = (kind, stream.representation.key)
    made = change.lines.get(key)
    if made is None:
        made = line(kind, stream.representation.body(_record_at(change, now=now)))
        if shared:
            change.lines[key] = made
    return made


def _record_at(change: StoredChange, *, now: bool) -> ObjectRecord:
    """
    Return the record to show; a watch that no longer selects the object gets its previous state.
    """
    if now or change.deleted or change.previous is None:
        return change.record
    obj = decode(change.previous.body)
    obj["metadata"]["resourceVersion"] = str(change.record.revision)
    return ObjectRecord(change.record.group_resource, change.record.revision, encode(obj))


class WatchCache:
    """The recent changes of one group resource and its watches."""

    def __init__(self, floor: int, clock: Clock) -> None:
        self.floor = floor  # changes up to here are dropped
        self.history: deque[StoredChange] = deque()
        self.streams: set[WatchBuffer] = set()
        self._clock = clock
        self._times: deque[float] = deque()  # when each change of the history was appended
        self._bytes = 0

    def append(self, change: StoredChange) -> None:
        self.history.append(change)
        self._times.append(self._clock.monotonic())
        self._bytes += len(change.record.body)
        self.trim()

    def trim(self) -> None:
        """Drop the changes beyond the limits of the history."""
        old = self._clock.monotonic() - FRESH_SECONDS
        while self._is_too_long(old):
            gone = self.history.popleft()
            self._times.popleft()
            self.floor = gone.record.revision
            self._bytes -= len(gone.record.body)

    def _is_too_long(self, old: float) -> bool:
        size = len(self.history)
        if size > SHORTEST_HISTORY and self._times[0] < old:
            return True
        return size > HISTORY or (self._bytes > BYTES and size > 1)

    def publish(self, change: StoredChange) -> None:
        self.append(change)
        for stream in tuple(self.streams):
            if stream.closed:
                self.streams.discard(stream)
            else:
                stream.send(change)
        change.lines.clear()  # shared by current watches only

    def replay(self, stream: WatchBuffer, after: int) -> None:
        """Replay the changes after a revision; raises 410 if they are dropped."""
        if after < self.floor:
            raise status_errors.resource_expired(
                f"too old resource version: {after} ({self.floor + 1})"
            )
        missed = [change for change in self.history if change.record.revision > after]
        found = (_event(change, stream, shared=False) for change in missed)
        stream.start_with(made for made in found if made is not None)


class WatchCaches:
    """All watch caches, and the response stream of a watch."""

    def __init__(self, clock: Clock, revision: Callable[[], int]) -> None:
        self._clock, self._revision = clock, revision
        self._watch_caches: dict[str, WatchCache] = {}
        self._floor = 2

    def start(self, floor: int) -> None:
        """Set the revision up to which no history exists."""
        self._floor = max(floor, 2)  # no earlier revision was ever visible

    def watch_cache(self, group_resource: str) -> WatchCache:
        if group_resource not in self._watch_caches:
            self._watch_caches[group_resource] = WatchCache(self._floor, self._clock)
        return self._watch_caches[group_resource]

    def publish(self, change: StoredChange) -> None:
        self.watch_cache(change.record.group_resource).publish(change)

    def end(self, group_resource: str | None = None) -> None:
        """End the watches of a resource that is no longer served, or all watches."""
        for name, watch_cache in self._watch_caches.items():
            if group_resource is None or name == group_resource:
                for stream in tuple(watch_cache.streams):
                    stream.end()

    async def stream(
        self, group_resource: str, stream: WatchBuffer, *, seconds: float, bookmarks: bool
    ) -> AsyncIterator[bytes]:
        """Stream events in chunks until the timeout or the end of the watch."""
        ends = self._clock.monotonic() + seconds
        marks = self._clock.monotonic() + BOOKMARK_SECONDS
        try:
            while not stream.closed or stream.buffer:
                if chunk := stream.read_chunk():
                    yield chunk
                    continue
                await stream.wait(min(ends, marks) - self._clock.monotonic())
                now = self._clock.monotonic()
                if not stream.buffer and now >= ends:
                    return
                if now >= marks:
                    marks = now + BOOKMARK_SECONDS
                    self.watch_cache(group_resource).trim()
                    if bookmarks and not stream.buffer:
                        body = stream.representation.bookmark(self._revision(), initial_end=False)
                        yield line("BOOKMARK", body)
        finally:
            self.watch_cache(group_resource).streams.discard(stream)
