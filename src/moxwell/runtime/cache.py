"""
The informer cache of one kind: its objects in memory, with indexes.

:mod:`moxwell.runtime.reflector` fills it and controllers read it. Handlers get every change with
the object before and after. After a relist, objects that are no longer listed are reported as
deleted. Objects are shared between readers and must not be changed.

An object that cannot be decoded is recorded under ``unreadable`` and its last readable version
stays. Code that deletes something because an object is missing must check ``unreadable`` first.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from moxwell.api.kinds import Object
from moxwell.errors import Missing
from moxwell.runtime.index import Indexer
from moxwell.runtime.key import Key
from moxwell.runtime.objects import key_of, resource_of, version_of

T = TypeVar("T")
Handler = Callable[[Any, Any, bool], None]  # before, after, part of a list


class NotCached(Missing):
    """The cache has no object with this key."""


class Cache(Generic[T]):
    """The objects of one kind."""

    def __init__(self, kind: Any, indexes: Mapping[str, Indexer] | None = None) -> None:
        self.kind = kind
        self.resource = resource_of(kind)
        self.unreadable: dict[Key, str] = {}
        self._objects: dict[Key, T] = {}
        self._handlers: list[Handler] = []
        self._indexers: dict[str, Indexer] = {}
        self._indexes: dict[str, dict[str, dict[Key, None]]] = {}
        self.changes = 0  # number of changes so far
        self._missing_lists = 0
        self._synced = asyncio.Event()
        for name, indexer in (indexes or {}).items():
            self.add_index(name, indexer)

    # ---- reading

    def find(self, key: Key) -> T | None:
        """The object, or None."""
        return self._objects.get(key)

    def get(self, key: Key) -> T:
        """The object; raises NotCached."""
        found = self._objects.get(key)
        if found is None:
            raise NotCached(f"{self.resource.kind} {key} is not cached")
        return found

    def list(self, namespace: str = "") -> tuple[T, ...]:
        """All objects, or those of one namespace, sorted by key."""
        keys = sorted(k for k in self._objects if not namespace or k.namespace == namespace)
        return tuple(self._objects[key] for key in keys)

    def by(self, index: str, value: str) -> tuple[T, ...]:
        """The objects that an index holds under ``value``, sorted by key."""
        return tuple(self._objects[key] for key in sorted(self._indexes[index].get(value, ())))

    def keys(self) -> tuple[Key, ...]:
        """All keys, unordered."""
        return tuple(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    # ---- subscriptions

    def add_index(self, name: str, indexer: Indexer) -> None:
        """Maintain an index; a second call with the same name has no effect."""
        if name in self._indexers:
            return
        self._indexers[name] = indexer
        self._indexes[name] = {}
        for key, obj in self._objects.items():
            self._index(key, None, obj, only=name)

    def subscribe(self, handler: Handler) -> None:
        """
        Call ``handler`` for every change; objects that are already cached are reported at once.
        """
        self._handlers.append(handler)
        for obj in tuple(self._objects.values()):
            handler(None, obj, True)

    def expect_list(self) -> None:
        """Register a reflector; the cache is synced when every reflector has listed once."""
        self._missing_lists += 1
        self._synced.clear()

    def listed(self) -> None:
        """A reflector has completed its first list."""
        self._missing_lists -= 1
        if self._missing_lists <= 0:
            self._synced.set()

    @property
    def synced(self) -> bool:
        """Whether every reflector has listed once."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Wait until every reflector has listed once."""
        await self._synced.wait()

    # ---- updates by reflectors

    def put(self, obj: T, *, listed: bool = False) -> None:
        """Store the new version of an object."""
        if isinstance(obj, Object):  # inlined: this line dominates the cost of a watch event
            meta = obj.metadata
            key, version = Key(meta.namespace, meta.name), meta.resource_version
        else:
            key, version = key_of(obj), version_of(obj)
        old = self._objects.get(key)
        if old is not None and version_of(old) == version:
            return
        if self.unreadable:
            self.unreadable.pop(key, None)
        self._objects[key] = obj
        self.changes += 1
        if self._indexers:
            self._index(key, old, obj)
        for handler in self._handlers:
            handler(old, obj, listed)

    def remove(self, key: Key, last: T | None = None) -> None:
        """Remove an object; ``last`` is its final version, if the API sent one."""
        self.unreadable.pop(key, None)
        old = self._objects.pop(key, None)
        if old is None:
            return
        self.changes += 1
        self._index(key, old, None)
        for handler in self._handlers:
            handler(old if last is None else last, None, False)

    def replace(self, objects: Iterable[T], unreadable: Mapping[Key, str], namespace: str) -> None:
        """Replace the content by a list of one namespace or of all; missing objects are deleted."""
        found: set[Key] = set(unreadable)
        for obj in objects:
            found.add(key_of(obj))
            self.put(obj, listed=True)
        known = [*self._objects, *self.unreadable]
        for key in known:
            if key not in found and (not namespace or key.namespace == namespace):
                self.remove(key)
        self.unreadable.update(unreadable)

    def set_aside(self, key: Key, why: str) -> None:
        """Record an object that cannot be decoded; its last readable version stays."""
        self.unreadable[key] = why

    def _index(self, key: Key, old: T | None, new: T | None, only: str = "") -> None:
        for name, indexer in self._indexers.items():
            if only and name != only:
                continue
            before = () if old is None else indexer(old)
            after = () if new is None else indexer(new)
            if before == after:
                continue
            entries = self._indexes[name]
            for value in before:
                bucket = entries.get(value)
                if bucket is not None:
                    bucket.pop(key, None)
                    if not bucket:
                        del entries[value]
            for value in after:
                entries.setdefault(value, {})[key] = None
