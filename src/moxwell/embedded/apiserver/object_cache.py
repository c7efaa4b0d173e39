"""
The in-memory cache of stored objects: JSON bytes in key order, with fields for filtering.

Committed records are on disk; every read sees only these. Staged records are not yet durable; only
writes see them, so that writes in one commit build on each other.
:mod:`moxwell.embedded.apiserver.commits` commits the staged records or drops them all.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from moxwell.embedded.apiserver.storage.rows import LogRow, RowName


class _Owner(msgspec.Struct, frozen=True):
    uid: str = ""
    name: str = ""
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")
    blocks: bool | None = msgspec.field(default=None, name="blockOwnerDeletion")


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
    """Decode a new object, which the caller may modify."""
    found: dict[str, Any] = _decode.decode(body)
    return found


def encode(value: object) -> bytes:
    return msgspec.json.encode(value)


def key_of(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


class ObjectRecord:
    """A stored object at one revision; immutable, except for cached renderings."""

    __slots__ = (
        "api_version",
        "body",
        "decoded_by",
        "group_resource",
        "key",
        "labels",
        "name",
        "namespace",
        "owners",
        "references_hash",
        "renderings",
        "revision",
        "uid",
    )

    def __init__(self, group_resource: str, revision: int, body: bytes) -> None:
        head = _head.decode(body)
        meta = head.metadata
        self.group_resource, self.revision, self.body = group_resource, revision, body
        self.namespace, self.name, self.uid = meta.namespace, meta.name, meta.uid
        self.key = key_of(meta.namespace, meta.name)
        self.api_version = head.api_version
        self.labels = meta.labels or NO_LABELS
        self.owners = tuple(o.uid for o in meta.owners or ())
        self.references_hash = hash(tuple(meta.owners)) if meta.owners else 0
        self.renderings: dict[str, Any] | None = None
        self.decoded_by: object | None = None  # the model that decoded the body

    def object(self) -> dict[str, Any]:
        """Decode a new copy of the object."""
        return decode(self.body)

    def cache_value(self, name: str, value: Any) -> None:
        """Cache a value computed from the body."""
        if self.renderings is None:
            self.renderings = {}
        self.renderings[name] = value

    def cached_value(self, name: str) -> Any:
        return None if self.renderings is None else self.renderings.get(name)


class ObjectTable:
    """The records of one group resource in key order."""

    __slots__ = ("keys", "records")

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.records: dict[str, ObjectRecord] = {}

    def put(self, record: ObjectRecord) -> None:
        if record.key not in self.records:
            insort(self.keys, record.key)
        self.records[record.key] = record

    def drop(self, key: str) -> None:
        if self.records.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]

    def scan(self, prefix: str = "", after: str = "") -> Iterator[ObjectRecord]:
        """Yield the records whose key starts with ``prefix``, after the key ``after``."""
        at = bisect_left(self.keys, max(prefix, after + "\0" if after else ""))
        while at < len(self.keys) and self.keys[at].startswith(prefix):
            yield self.records[self.keys[at]]
            at += 1


class StoredChange:
    """One write: the new record (on deletion the last state) and the previous one."""

    __slots__ = ("deleted", "lines", "previous", "record")

    def __init__(
        self, record: ObjectRecord, previous: ObjectRecord | None, *, deleted: bool
    ) -> None:
        self.record, self.previous, self.deleted = record, previous, deleted
        self.lines: dict[tuple[str, str], bytes] = {}

    def row(self) -> LogRow:
        record = self.record
        return LogRow(record.revision, record.group_resource, record.key, self.deleted, record.body)


class ObjectCache:
    """All tables in both layers, indexed by uid and owner."""

    def __init__(self) -> None:
        self.revision = 1  # revision of the last committed change
        self.head = 1  # revision of the last staged change
        self._tables: dict[str, ObjectTable] = {}
        self._staged: dict[tuple[str, str], ObjectRecord | None] = {}
        self._owned: dict[str, dict[tuple[str, str], None]] = {}
        self._uids: dict[str, tuple[str, str]] = {}
        self._unreadable: dict[tuple[str, str], RowName] = {}
        self._lost: set[tuple[str, str]] = set()

    # objects whose content is unknown

    def set_unreadable(self, name: RowName) -> None:
        """Remember an object whose stored content is damaged."""
        self._unreadable[name.group_resource, name.key] = name
        self.continue_after(name.revision)

    def continue_after(self, revision: int) -> None:
        """Give out only revisions after this one."""
        self.revision = max(self.revision, revision)
        self.head = max(self.head, self.revision)

    def set_lost(self, names: Iterable[RowName]) -> None:
        """Replace the set of objects that a repair gave up."""
        self._lost = {(name.group_resource, name.key) for name in names}

    def unreadable(self) -> tuple[RowName, ...]:
        return tuple(self._unreadable[at] for at in sorted(self._unreadable))

    def find_unreadable(self, group_resource: str, prefix: str = "") -> RowName | None:
        """Find an object with this key prefix whose content is damaged."""
        if not self._unreadable:
            return None
        return next(
            (
                name
                for (at, key), name in sorted(self._unreadable.items())
                if at == group_resource and key.startswith(prefix)
            ),
            None,
        )

    def is_unknown(self, group_resource: str, key: str) -> bool:
        """Whether an object may have existed although no record of it does."""
        return (group_resource, key) in self._unreadable or (group_resource, key) in self._lost

    # records

    def table(self, group_resource: str) -> ObjectTable:
        """Return the committed records of one group resource."""
        return self._tables.setdefault(group_resource, ObjectTable())

    def group_resources(self) -> list[str]:
        return sorted(self._tables)

    def find(self, group_resource: str, key: str) -> ObjectRecord | None:
        """Find a committed record."""
        return self.table(group_resource).records.get(key)

    def find_staged(self, group_resource: str, key: str) -> ObjectRecord | None:
        """Find a record, staged changes included."""
        place = (group_resource, key)
        return self._staged[place] if place in self._staged else self.find(group_resource, key)

    def scan_staged(self, group_resource: str, prefix: str = "") -> list[ObjectRecord]:
        """Yield all records of a group resource, staged changes included."""
        found = {r.key: r for r in self.table(group_resource).scan(prefix)}
        for (at, key), record in self._staged.items():
            if at == group_resource and key.startswith(prefix):
                if record is None:
                    found.pop(key, None)
                else:
                    found[key] = record
        return [found[key] for key in sorted(found)]

    def owned_by(self, uid: str) -> list[ObjectRecord]:
        """Return the committed records with this owner."""
        places = self._owned.get(uid, ())
        return [
            r for group_resource, key in places if (r := self.find(group_resource, key)) is not None
        ]

    def find_uid(self, uid: str) -> ObjectRecord | None:
        """Find the committed record with this uid."""
        place = self._uids.get(uid)
        return None if place is None else self.find(*place)

    def stage(self, change: StoredChange) -> None:
        record = change.record
        self.head = record.revision
        self._staged[record.group_resource, record.key] = None if change.deleted else record

    def unstage(self) -> None:
        """Drop all staged changes."""
        self._staged.clear()
        self.head = self.revision

    def commit(self, change: StoredChange) -> None:
        """Move a durable change to the committed layer."""
        record = change.record
        place = (record.group_resource, record.key)
        staged = self._staged.get(place)
        if place in self._staged and (staged is None if change.deleted else staged is record):
            del self._staged[place]
        self.load(change)

    def load(self, change: StoredChange) -> None:
        """Apply a change to the committed layer, after its commit or on start."""
        record, table = change.record, self.table(change.record.group_resource)
        self.revision = max(self.revision, record.revision)
        self.head = max(self.head, self.revision)
        self._disown(table.records.get(record.key))
        if change.deleted:
            table.drop(record.key)
            self._uids.pop(record.uid, None)
            return
        table.put(record)
        self._uids[record.uid] = (record.group_resource, record.key)
        for uid in record.owners:
            self._owned.setdefault(uid, {})[record.group_resource, record.key] = None

    def _disown(self, old: ObjectRecord | None) -> None:
        if old is None:
            return
        for uid in old.owners:
            places = self._owned.get(uid)
            if places is not None:
                places.pop((old.group_resource, old.key), None)
                if not places:
                    del self._owned[uid]
