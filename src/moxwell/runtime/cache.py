"""
What the API holds of one kind, in memory and indexed; always a little behind, never wrong for long.

:mod:`moxwell.runtime.reflector` puts objects in; controllers read; handlers hear of every change
with the object as it was and as it is. A relist after lost history is compared with what was known,
and what has vanished is told as a deletion, so nobody keeps a ghost. Objects are shared and frozen
(dicts by agreement): nobody changes what a cache gave him.

An object that cannot be read is set aside under ``unreadable`` and its last readable form is kept.
Whoever deletes things for want of an object must look there first: unreadable is not gone.
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
Handler = Callable[[Any, Any, bool], None]  # before, after, whether it is part of a list


class NotCached(Missing):
    """No such object in the cache."""


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
        self.changes = 0  # puts and removals so far
        self._missing_lists = 0
        self._synced = asyncio.Event()
        for name, indexer in (indexes or {}).items():
            self.add_index(name, indexer)

    # ---- reading

    def find(self, key: Key) -> T | None:
        """The object, or None."""
        return self._objects.get(key)

    def get(self, key: Key) -> T:
        """The object, or NotCached."""
        found = self._objects.get(key)
        if found is None:
            raise NotCached(f"{self.resource.kind} {key} is not there")
        return found

    def list(self, namespace: str = "") -> tuple[T, ...]:
        """All objects, or those of one namespace, sorted by key."""
        keys = sorted(k for k in self._objects if not namespace or k.namespace == namespace)
        return tuple(self._objects[key] for key in keys)

    def by(self, index: str, value: str) -> tuple[T, ...]:
        """The objects an index has under ``value``, sorted by key."""
        return tuple(self._objects[key] for key in sorted(self._indexes[index].get(value, ())))

    def keys(self) -> tuple[Key, ...]:
        """All keys, in no order."""
        return tuple(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    # ---- wiring

    def add_index(self, name: str, indexer: Indexer) -> None:
        """Keep one more index; the same name twice means the same index."""
        if name in self._indexers:
            return
        self._indexers[name] = indexer
        self._indexes[name] = {}
        for key, obj in self._objects.items():
            self._index(key, None, obj, only=name)

    def subscribe(self, handler: Handler) -> None:
        """Hear of every change from now on; what is already there is told at once."""
        self._handlers.append(handler)
        for obj in tuple(self._objects.values()):
            handler(None, obj, True)

    def expect_list(self) -> None:
        """One more reflector feeds this cache; it is not synced before that one has listed."""
        self._missing_lists += 1
        self._synced.clear()

    def listed(self) -> None:
        """One reflector has listed for the first time."""
        self._missing_lists -= 1
        if self._missing_lists <= 0:
            self._synced.set()

    @property
    def synced(self) -> bool:
        """Whether everything has been listed once."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Wait until everything has been listed once."""
        await self._synced.wait()

    # ---- feeding

    def put(self, obj: T, *, listed: bool = False) -> None:
        """The object is now like this."""
        if isinstance(obj, Object):  # spelled out: this line is most of what following costs
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
        """The object is gone; ``last`` is how the API saw it last, if it said."""
        self.unreadable.pop(key, None)
        old = self._objects.pop(key, None)
        if old is None:
            return
        self.changes += 1
        self._index(key, old, None)
        for handler in self._handlers:
            handler(old if last is None else last, None, False)

    def replace(self, objects: Iterable[T], unreadable: Mapping[Key, str], namespace: str) -> None:
        """A whole list, of one namespace or of all: what is not in it is gone."""
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
        """The object exists in a form nobody can read; its last readable one stays."""
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
