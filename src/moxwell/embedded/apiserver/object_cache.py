"""
What is stored, in memory: JSON bytes per object, in key order, with the little that lists filter
by.

Two layers. *Committed* records are what the disk holds; every read sees only these. *Staged*
records are written but not yet on disk; only writes see them, so that two writes in one commit
follow each other. :mod:`moxwell.embedded.apiserver.commits` moves records from the second layer to the first,
or drops them all.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from moxwell.embedded.apiserver.revision_log import Row


class _Owner(msgspec.Struct):
    uid: str = ""


class _Meta(msgspec.Struct):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    owners: list[_Owner] | None = msgspec.field(default=None, name="ownerReferences")


class _Head(msgspec.Struct):
    metadata: _Meta
    api_version: str = msgspec.field(name="apiVersion")


_head = msgspec.json.Decoder(_Head)
_decode = msgspec.json.Decoder()
NO_LABELS: Mapping[str, str] = {}


def decode(body: bytes) -> dict[str, Any]:
    """A fresh object: the caller may change it."""
    found: dict[str, Any] = _decode.decode(body)
    return found


def encode(value: object) -> bytes:
    return msgspec.json.encode(value)


def key_of(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


class Record:
    """One stored object at one revision. Never changed; ``cache`` holds renderings of it."""

    __slots__ = (
        "api_version",
        "body",
        "cache",
        "fresh",
        "key",
        "labels",
        "name",
        "namespace",
        "owners",
        "revision",
        "store",
        "uid",
    )

    def __init__(self, store: str, revision: int, body: bytes) -> None:
        head = _head.decode(body)
        meta = head.metadata
        self.store, self.revision, self.body = store, revision, body
        self.namespace, self.name, self.uid = meta.namespace, meta.name, meta.uid
        self.key = key_of(meta.namespace, meta.name)
        self.api_version = head.api_version
        self.labels = meta.labels or NO_LABELS
        self.owners = tuple(o.uid for o in meta.owners or ())
        self.cache: dict[str, Any] | None = None
        self.fresh: object | None = None  # the custom model under which the body was made

    def object(self) -> dict[str, Any]:
        """A fresh copy."""
        return decode(self.body)

    def remember(self, name: str, value: Any) -> None:
        """Keep something computed from the body, for as long as the record lives."""
        if self.cache is None:
            self.cache = {}
        self.cache[name] = value

    def recall(self, name: str) -> Any:
        return None if self.cache is None else self.cache.get(name)


class Table:
    """The records of one stored kind, in the order of their keys."""

    __slots__ = ("keys", "records")

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.records: dict[str, Record] = {}

    def put(self, record: Record) -> None:
        if record.key not in self.records:
            insort(self.keys, record.key)
        self.records[record.key] = record

    def drop(self, key: str) -> None:
        if self.records.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]

    def scan(self, prefix: str = "", after: str = "") -> Iterator[Record]:
        """Records whose key starts with ``prefix``, from the one behind ``after`` on."""
        at = bisect_left(self.keys, max(prefix, after + "\0" if after else ""))
        while at < len(self.keys) and self.keys[at].startswith(prefix):
            yield self.records[self.keys[at]]
            at += 1


class Change:
    """One write: the new record (for a deletion the last state) and the one it replaces."""

    __slots__ = ("deleted", "lines", "previous", "record")

    def __init__(self, record: Record, previous: Record | None, *, deleted: bool) -> None:
        self.record, self.previous, self.deleted = record, previous, deleted
        self.lines: dict[tuple[str, str], bytes] = {}

    def row(self) -> Row:
        record = self.record
        return Row(record.revision, record.store, record.key, self.deleted, record.body)


class State:
    """All tables, both layers, and who is owned by whom."""

    def __init__(self) -> None:
        self.revision = 1  # of the last committed change
        self.head = 1  # of the last staged change
        self._tables: dict[str, Table] = {}
        self._staged: dict[tuple[str, str], Record | None] = {}
        self._owned: dict[str, dict[tuple[str, str], None]] = {}
        self._uids: dict[str, tuple[str, str]] = {}

    def table(self, store: str) -> Table:
        """The committed records of one kind."""
        return self._tables.setdefault(store, Table())

    def stores(self) -> list[str]:
        return sorted(self._tables)

    def find(self, store: str, key: str) -> Record | None:
        """As committed."""
        return self.table(store).records.get(key)

    def find_staged(self, store: str, key: str) -> Record | None:
        """As the next write must see it."""
        place = (store, key)
        return self._staged[place] if place in self._staged else self.find(store, key)

    def scan_staged(self, store: str, prefix: str = "") -> list[Record]:
        """All of a kind as the next write must see them."""
        found = {r.key: r for r in self.table(store).scan(prefix)}
        for (at, key), record in self._staged.items():
            if at == store and key.startswith(prefix):
                if record is None:
                    found.pop(key, None)
                else:
                    found[key] = record
        return [found[key] for key in sorted(found)]

    def owned_by(self, uid: str) -> list[Record]:
        """The committed records that name this owner."""
        places = self._owned.get(uid, ())
        return [r for store, key in places if (r := self.find(store, key)) is not None]

    def find_uid(self, uid: str) -> Record | None:
        """The committed record with this uid."""
        place = self._uids.get(uid)
        return None if place is None else self.find(*place)

    def stage(self, change: Change) -> None:
        record = change.record
        self.head = record.revision
        self._staged[record.store, record.key] = None if change.deleted else record

    def unstage(self) -> None:
        """Forget every write that is not on disk."""
        self._staged.clear()
        self.head = self.revision

    def commit(self, change: Change) -> None:
        """This write is on disk."""
        record = change.record
        place = (record.store, record.key)
        staged = self._staged.get(place)
        if place in self._staged and (staged is None if change.deleted else staged is record):
            del self._staged[place]
        self.load(change)

    def load(self, change: Change) -> None:
        """Put a change into the committed layer: after its commit, or on start."""
        record, table = change.record, self.table(change.record.store)
        self.revision = max(self.revision, record.revision)
        self.head = max(self.head, self.revision)
        self._disown(table.records.get(record.key))
        if change.deleted:
            table.drop(record.key)
            self._uids.pop(record.uid, None)
            return
        table.put(record)
        self._uids[record.uid] = (record.store, record.key)
        for uid in record.owners:
            self._owned.setdefault(uid, {})[record.store, record.key] = None

    def _disown(self, old: Record | None) -> None:
        if old is None:
            return
        for uid in old.owners:
            places = self._owned.get(uid)
            if places is not None:
                places.pop((old.store, old.key), None)
                if not places:
                    del self._owned[uid]
