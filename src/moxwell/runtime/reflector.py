"""
Fills a cache from the API: one list, then a watch.

The list is paged, or streamed as initial events where the server supports it. A watch that ends
resumes at the last version; 410 Gone causes a relist, and the cache reports what was deleted
meanwhile. Failed tries back off with jitter.
"""

import random
from collections.abc import Iterable
from contextlib import aclosing
from datetime import timedelta
from typing import Any, Generic, TypeVar

import structlog

from moxwell.clock import Clock
from moxwell.errors import MoxwellError, Terminal
from moxwell.kube.client import Kube
from moxwell.kube.codec import UnreadableObject, WatchEvent
from moxwell.kube.errors import Gone, NotFound
from moxwell.kube.watch import Event, WatchStream
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.metrics import Metrics
from moxwell.runtime.objects import key_of

T = TypeVar("T")
FIRST_SECONDS, CAP_SECONDS = 0.8, 30.0
QUICK_SECONDS = 5.0  # a watch that ends earlier counts as failed

log = structlog.get_logger(__name__)


class Reflector(Generic[T]):
    """One kind in one namespace or in all, for one cache."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        cache: Cache[T],
        *,
        namespace: str = "",
        labels: str = "",
        page_size: int = 500,
        streaming: bool = False,
        optional: bool = False,
        rng: random.Random | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._kube, self._clock, self._cache = kube, clock, cache
        self._namespace, self._labels = namespace, labels
        self._page_size, self._streaming, self._optional = page_size, streaming, optional
        self._rng = rng or random.Random()
        self._metrics = metrics
        self._version = ""  # empty: list first
        self._why = "start"
        self._listed_once = False
        self._quick_failures = 0
        cache.expect_list()

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            started = self._clock.monotonic()
            try:
                await self._round()
            except Gone as error:
                self._forget("expired", error)
            except NotFound as error:
                self._not_served(error)
            except MoxwellError as error:
                self._failed(error)
            else:
                self._failed(None)
            if self._clock.monotonic() - started >= QUICK_SECONDS:
                self._quick_failures = 0
            await self._pause()

    async def _round(self) -> None:
        """List if needed, then watch until the watch ends."""
        if not self._version and not self._streaming:
            await self._list()
        watch: WatchStream[Any] = self._kube.watch(
            self._cache.kind,
            self._namespace,
            labels=self._labels,
            resource_version=self._version,
            initial=not self._version,
            lasting=timedelta(seconds=self._rng.uniform(300, 600)),
        )
        try:
            await (self._follow(watch) if self._version else self._fill(watch))
        finally:
            if self._version:
                self._version = watch.resource_version

    async def _list(self) -> None:
        page = await self._kube.list(
            self._cache.kind, self._namespace, labels=self._labels, limit=self._page_size
        )
        aside = {_key(bad): str(bad.error) for bad in page.unreadable}
        self._listed(page.items, aside, page.resource_version)

    async def _fill(self, watch: WatchStream[Any]) -> None:
        """A streaming list: initial events up to the bookmark that ends them."""
        items: list[Any] = []
        aside: dict[Key, str] = {}
        async with aclosing(watch.batches()) as batches:
            async for batch in batches:
                if self._version:
                    self._take(batch)
                    continue
                for event in batch:
                    if isinstance(event, WatchEvent):
                        items.append(event.object)
                    elif isinstance(event, UnreadableObject):
                        aside[_key(event)] = str(event.error)
                    elif event.initial_end:
                        self._listed(items, aside, event.resource_version)
                        self._take(batch)  # the watch that follows
                        break

    async def _follow(self, watch: WatchStream[Any]) -> None:
        async with aclosing(watch.batches()) as batches:
            async for batch in batches:
                self._take(batch)

    def _take(self, batch: Iterable[Event[Any]]) -> None:
        put = self._cache.put
        for event in batch:
            if isinstance(event, WatchEvent):
                if event.type == "DELETED":
                    self._cache.remove(key_of(event.object), event.object)
                else:
                    put(event.object)
            elif isinstance(event, UnreadableObject):
                self._set_aside(event)

    def _set_aside(self, event: UnreadableObject) -> None:
        if event.type == "DELETED":
            self._cache.remove(_key(event))
            return
        log.warning("object unreadable", kind=self._kind, key=str(_key(event)), why=event.error)
        self._cache.set_aside(_key(event), str(event.error))

    def _listed(self, items: Any, aside: dict[Key, str], version: str) -> None:
        for key, why in aside.items():
            log.warning("object unreadable", kind=self._kind, key=str(key), why=why)
        self._cache.replace(items, aside, self._namespace)
        self._version = version
        if self._metrics:
            self._metrics.relists.labels(self._kind, self._why).inc()
        if not self._listed_once:
            self._listed_once = True
            self._cache.listed()

    def _forget(self, why: str, error: MoxwellError) -> None:
        log.info("history lost", kind=self._kind, why=str(error))
        self._version, self._why = "", why

    def _not_served(self, error: NotFound) -> None:
        """The API does not serve the kind: an optional one is empty."""
        self._failed(None if self._optional else error)
        if self._optional:
            self._listed((), {}, "")

    def _failed(self, error: MoxwellError | None) -> None:
        self._quick_failures += 1
        if error is None:
            return
        if not self._version and self._streaming and isinstance(error, Terminal):
            self._streaming = False  # the server does not stream lists
            log.info("streaming list refused", kind=self._kind, why=str(error))
            return
        log.warning("watch failed", kind=self._kind, error=str(error), reason=error.reason)

    async def _pause(self) -> None:
        """No delay after a good watch, exponential with jitter after a failed one."""
        if self._quick_failures <= 1:
            await self._clock.sleep(self._rng.random() * 0.1)
            return
        seconds = min(FIRST_SECONDS * 2.0 ** min(self._quick_failures - 2, 16), CAP_SECONDS)
        await self._clock.sleep(seconds * (1 + self._rng.random()))

    @property
    def _kind(self) -> str:
        return self._cache.resource.kind


def _key(bad: UnreadableObject) -> Key:
    return Key(bad.metadata.namespace, bad.metadata.name)
