"""
A watch: the changes of a kind as an async iterator.

A ``WatchStream`` keeps the last resource version; iterating again resumes there. One iteration is
one request and ends when the server ends it. An expired version raises ``Gone``: the caller must
list again. Reconnecting and waiting are the caller's task.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from datetime import timedelta
from typing import Any, Generic, TypeVar

from moxwell.errors import Unreachable
from moxwell.kube.caller import Caller, NoAnswer, Query, words
from moxwell.kube.codec import Bookmark, Codec, UnreadableObject, WatchEvent

T = TypeVar("T")
Event = WatchEvent[T] | Bookmark | UnreadableObject
GRACE = timedelta(seconds=30)
MAX_EVENT = 16 << 20  # several times what an API server stores


class WatchStream(Generic[T]):
    """The changes of one kind, in one namespace or all, from ``resource_version`` on."""

    def __init__(
        self,
        caller: Caller,
        codec: Codec[T],
        path: str,
        *,
        query: Query = (),
        resource_version: str = "",
        initial: bool = False,
        lasting: timedelta = timedelta(minutes=5),
    ) -> None:
        self._caller, self._codec, self._path = caller, codec, path
        self._query, self._initial, self._lasting = tuple(query), initial, lasting
        self.resource_version = resource_version

    async def __aiter__(self) -> AsyncGenerator[Event[T], None]:
        """The changes until the server ends the watch."""
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def batches(self) -> AsyncGenerator[Iterator[Event[T]], None]:
        """The changes in batches as they arrive; consume each batch before the next."""
        response = await self._caller.call("GET", self._path, query=self._ask())
        chunks = response.chunks or _whole(response.body)
        until = asyncio.get_running_loop().time() + (self._lasting + GRACE).total_seconds()
        rest = b""
        try:
            while chunk := await _next(chunks, until):
                *lines, rest = (rest + chunk if rest else chunk).split(b"\n")
                if len(rest) > MAX_EVENT:
                    raise Unreachable(f"an event of a watch has more than {MAX_EVENT >> 20} MiB")
                yield self._events(lines)  # chunks end anywhere, events at a newline
            yield self._events([rest])
        finally:
            if close := getattr(chunks, "aclose", None):
                await close()

    def _events(self, lines: list[bytes]) -> Iterator[Event[T]]:
        read = self._codec.change
        for line in lines:
            if not line:
                continue
            found = read(line)
            if not self._initial:
                self.resource_version = _version(found) or self.resource_version
            elif isinstance(found, Bookmark) and found.initial_end:
                self.resource_version, self._initial = found.resource_version, False
            yield found  # before this bookmark, events are not ordered by version

    def _ask(self) -> Query:
        """The query of the next request; initial events only until they are complete."""
        seconds = max(1, int(self._lasting.total_seconds()))
        asked = words(watch=True, allowWatchBookmarks=True, timeoutSeconds=seconds)
        if self._initial:
            asked += words(sendInitialEvents=True, resourceVersionMatch="NotOlderThan")
        return [*asked, *words(resourceVersion=self.resource_version), *self._query]


def _version(found: Event[Any]) -> str:
    if isinstance(found, WatchEvent):
        obj = found.object
        if type(obj) is dict:
            return str(obj["metadata"].get("resourceVersion", ""))
        version: str = obj.metadata.resource_version
        return version
    if isinstance(found, Bookmark):
        return found.resource_version
    return found.metadata.resource_version


async def _whole(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _next(chunks: AsyncIterator[bytes], until: float) -> bytes:
    """The next non-empty chunk; empty at the end."""
    try:
        async with asyncio.timeout_at(until):
            while not (chunk := await anext(chunks, None)):
                if chunk is None:
                    return b""
            return chunk
    except TimeoutError as error:
        raise NoAnswer("a watch did not end when it should have") from error
