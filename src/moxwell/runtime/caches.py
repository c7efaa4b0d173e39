"""
One informer cache per kind, shared by all controllers, and the reflectors that fill them.

Asking for a cache starts it. With several namespaces there is one reflector per namespace; a
cluster-scoped kind has one.
"""

import asyncio
import random
from collections.abc import Mapping
from typing import Any

from moxwell.clock import Clock
from moxwell.kube.client import Kube
from moxwell.runtime.cache import Cache
from moxwell.runtime.index import Indexer
from moxwell.runtime.metrics import Metrics
from moxwell.runtime.objects import resource_of
from moxwell.runtime.reflector import Reflector
from moxwell.runtime.settings import ManagerSettings


class Caches:
    """The caches of one manager."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        settings: ManagerSettings,
        metrics: Metrics,
        rng: random.Random,
    ) -> None:
        self._kube, self._clock, self._settings = kube, clock, settings
        self._metrics, self._rng = metrics, rng
        self._caches: dict[Any, Cache[Any]] = {}
        self._waiting: list[Reflector[Any]] = []  # reflectors that are not started yet
        self._wake = asyncio.Event()
        self._counted: dict[Any, int] = {}

    def of(
        self, kind: Any, indexes: Mapping[str, Indexer] | None = None, *, optional: bool = False
    ) -> Cache[Any]:
        """The cache of a kind; an ``optional`` kind may be missing from the API."""
        cache = self._caches.get(kind)
        if cache is None:
            cache = self._caches[kind] = Cache(kind)
            for namespace in self._namespaces(kind):
                self._waiting.append(self._reflector(cache, namespace, optional))
            self._wake.set()
        for name, indexer in (indexes or {}).items():
            cache.add_index(name, indexer)
        return cache

    async def run(self) -> None:
        """Run all reflectors, including those added later, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                for reflector in self._waiting:
                    group.create_task(reflector.run())
                self._waiting.clear()
                await self._wake.wait()

    @property
    def synced(self) -> bool:
        """Whether every cache is synced."""
        return all(cache.synced for cache in self._caches.values())

    async def wait_synced(self) -> None:
        """Wait until every cache is synced."""
        for cache in tuple(self._caches.values()):
            await cache.wait_synced()

    def sample(self) -> None:
        """Set the gauges; called at each scrape."""
        for kind, cache in self._caches.items():
            name = cache.resource.group_resource
            self._metrics.cached.labels(name).set(len(cache))
            new = cache.changes - self._counted.get(kind, 0)
            self._metrics.changes.labels(name).inc(new)
            self._counted[kind] = cache.changes

    def _namespaces(self, kind: Any) -> tuple[str, ...]:
        if not resource_of(kind).namespaced or not self._settings.namespaces:
            return ("",)
        return self._settings.namespaces

    def _reflector(self, cache: Cache[Any], namespace: str, optional: bool) -> Reflector[Any]:
        return Reflector(
            self._kube,
            self._clock,
            cache,
            namespace=namespace,
            page_size=self._settings.page_size,
            streaming=self._settings.streaming_lists,
            optional=optional,
            rng=self._rng,
            metrics=self._metrics,
        )
