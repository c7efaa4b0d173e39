"""
Watching: the changes of a kind as a stream of values, from a version on.

A ``Watch`` remembers the last version it has seen; iterating it again resumes there. One iteration
is one request and ends when the server ends it. A version that is no longer kept raises ``Gone``:
whoever keeps a copy must list again. Reconnecting, waiting and listing are the reader's job.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from typing import Generic, TypeVar

import msgspec

from moxwell.api.kinds import Object
from moxwell.kube import codec as reading
from moxwell.kube.calls import Caller, NoAnswer, Query, words
from moxwell.kube.codec import Bookmark, Change, Codec, Unreadable
from moxwell.kube.errors import Status, error_for

T = TypeVar("T")
_STATUS = msgspec.json.Decoder(Status)
GRACE = timedelta(seconds=30)


class Watch(Generic[T]):
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

    async def __aiter__(self) -> AsyncGenerator[Change[T] | Bookmark | Unreadable, None]:
        """Changes as they come; until the server ends the watch."""
        response = await self._caller.call("GET", self._path, query=self._ask())
        chunks = response.chunks or _whole(response.body)
        lasting = (self._lasting + GRACE).total_seconds()
        async with aclosing(_lines(chunks, asyncio.get_running_loop().time() + lasting)) as lines:
            async for line in lines:
                yield self._read(line)

    def _ask(self) -> Query:
        """From where it left off; initial events only until they have all been seen."""
        seconds = max(1, int(self._lasting.total_seconds()))
        asked = words(watch=True, allowWatchBookmarks=True, timeoutSeconds=seconds)
        if self._initial:
            asked += words(sendInitialEvents=True, resourceVersionMatch="NotOlderThan")
        return [*asked, *words(resourceVersion=self.resource_version), *self._query]

    def _read(self, line: bytes) -> Change[T] | Bookmark | Unreadable:
        type_, raw = self._codec.event(line)
        if type_ == "BOOKMARK":
            mark = reading.bookmark(raw)
            if mark.initial_end or not self._initial:
                self.resource_version, self._initial = mark.resource_version, False
            return mark
        if type_ == "ERROR":
            raise error_for(_STATUS.decode(raw))
        change = self._codec.change(type_, raw)
        if not self._initial:  # initial events come in no order of versions
            self.resource_version = _version(change) or self.resource_version
        return change


def _version(change: Change[T] | Unreadable) -> str:
    if isinstance(change, Unreadable):
        return change.metadata.resource_version
    obj = change.object
    if isinstance(obj, Object):
        return obj.metadata.resource_version
    return str(obj["metadata"].get("resourceVersion", ""))  # type: ignore[index]


async def _whole(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _lines(chunks: AsyncIterator[bytes], until: float) -> AsyncGenerator[bytes, None]:
    """Chunks end anywhere; events end at a newline. A watch that outlives its time is dead."""
    rest = b""
    try:
        while chunk := await _next(chunks, until):
            *whole, rest = (rest + chunk if rest else chunk).split(b"\n")
            for line in whole:
                if line:
                    yield line
        if rest.strip():
            yield rest
    finally:
        if close := getattr(chunks, "aclose", None):
            await close()


async def _next(chunks: AsyncIterator[bytes], until: float) -> bytes:
    """The next chunk that is not empty; empty at the end."""
    try:
        async with asyncio.timeout_at(until):
            while not (chunk := await anext(chunks, None)):
                if chunk is None:
                    return b""
            return chunk
    except TimeoutError as error:
        raise NoAnswer("a watch did not end when it should have") from error
