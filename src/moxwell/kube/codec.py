"""
Bytes to objects and back, for one kind: typed Structs, or dicts where only a Resource is known.

Typed reading goes straight from bytes to the Struct. Go programs write ``null`` for empty lists and
maps in places, which a strict decoder refuses; such an object is read again without its nulls, so
only those few pay. An object that still does not fit its declaration is ``Unreadable``: alone it
raises, in a list or a watch it is set aside, since one bad object must not hide all the others.
"""

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from moxwell.api import json_merge, kinds
from moxwell.api.kinds import Object, Resource
from moxwell.api.meta import ListMeta, ObjectMeta, Value
from moxwell.errors import Invalid
from moxwell.kube.errors import Status, error_for

T = TypeVar("T")
Json = dict[str, Any]
INITIAL_END = "k8s.io/initial-events-end"


class NotReadable(Invalid):
    """An object that does not fit the declaration of its kind."""

    reason = "Unreadable"

    def __init__(self, kind: str, key: str, why: str) -> None:
        super().__init__(f"{kind} {key} cannot be read: {why}")
        self.kind, self.key = kind, key


class Unreadable(Struct, frozen=True):
    """Set aside: who it was, and why it could not be read."""

    metadata: ObjectMeta
    error: NotReadable
    type: str = ""  # of the watch event it came with


class Change(Struct, Generic[T], frozen=True):
    """One event of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: T


class Bookmark(Struct, frozen=True):
    """All changes up to this version have been seen; or the initial events are over."""

    resource_version: str
    initial_end: bool = False


class Page(Struct, Generic[T], frozen=True):
    """Objects of a list, the version they are from, and where to go on."""

    items: tuple[T, ...]
    metadata: ListMeta
    unreadable: tuple[Unreadable, ...] = ()

    @property
    def resource_version(self) -> str:
        return self.metadata.resource_version


class _List(Struct, Generic[T]):
    metadata: ListMeta
    items: list[T] | None = None


class _Event(Struct):
    type: str
    object: Raw


class _Head(Value, frozen=True, kw_only=True):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


_HEAD = msgspec.json.Decoder(_Head)
_EVENT = msgspec.json.Decoder(_Event)
_RAW_LIST = msgspec.json.Decoder(_List[Raw])
_STATUS = msgspec.json.Decoder(Status)
_ANY = msgspec.json.Decoder()


class Codec(Generic[T]):
    """How objects of one kind are read."""

    def __init__(self, kind: type[T] | Resource, *, keep_managed_fields: bool = False) -> None:
        self.typed = not isinstance(kind, Resource)
        self.resource: Resource = kind if isinstance(kind, Resource) else cast(Any, kind).resource
        self._type: Any = kind if self.typed else Json
        self._one: Any = msgspec.json.Decoder(self._type)
        self._list: Any = msgspec.json.Decoder(_of(_List, self._type))
        self._change: Any = msgspec.json.Decoder(_of(Change, self._type))
        self._keep = keep_managed_fields or self.typed

    def one(self, raw: bytes | Raw) -> T:
        """One object, or NotReadable."""
        try:
            found = self._one.decode(raw)
        except msgspec.ValidationError:
            return self._again(raw)
        except msgspec.DecodeError as error:
            raise NotReadable(self.resource.kind, "", str(error)) from error
        return cast(T, found if self._keep else _without_managed_fields(found))

    def page(self, raw: bytes) -> Page[T]:
        """One page of a list."""
        try:
            found = self._list.decode(raw)
        except msgspec.ValidationError:
            return self._page_apart(raw)
        except msgspec.DecodeError as error:
            raise NotReadable(f"{self.resource.kind} list", "", str(error)) from error
        items = found.items or []
        if not self.typed:
            self._complete(items)
        return Page(tuple(items), found.metadata)

    def change(self, line: bytes) -> Change[T] | Bookmark | Unreadable:
        """One line of a watch; raises what an ERROR event means."""
        try:
            found: Change[T] = self._change.decode(line)
        except msgspec.DecodeError:
            return self._odd(line)
        if not self.typed:
            self._complete([found.object])
        return found

    def _odd(self, line: bytes) -> Change[T] | Bookmark | Unreadable:
        """A line that is no plain change: a bookmark, an error, or an object to be read again."""
        try:
            event = _EVENT.decode(line)
        except msgspec.DecodeError as error:
            raise NotReadable(f"{self.resource.kind} watch event", "", str(error)) from error
        if event.type == "BOOKMARK":
            meta = head(event.object)
            return Bookmark(meta.resource_version, meta.annotations.get(INITIAL_END) == "true")
        if event.type == "ERROR":
            raise error_for(_STATUS.decode(event.object))
        try:
            return Change(cast(Any, event.type), self.one(event.object))
        except NotReadable as error:
            return Unreadable(head(event.object), error, event.type)

    def _again(self, raw: bytes | Raw) -> T:
        plain = json_merge.without_nulls(_ANY.decode(raw))
        try:
            return cast(T, msgspec.convert(plain, self._type, str_keys=True))
        except msgspec.ValidationError as error:
            raise NotReadable(self.resource.kind, head(raw).key, str(error)) from error

    def _page_apart(self, raw: bytes) -> Page[T]:
        """Item by item, when the whole page does not fit."""
        apart = _RAW_LIST.decode(raw)
        items: list[T] = []
        bad: list[Unreadable] = []
        for item in apart.items or ():
            try:
                items.append(self.one(item))
            except NotReadable as error:
                bad.append(Unreadable(head(item), error))
        return Page(tuple(items), apart.metadata, tuple(bad))

    def _complete(self, items: list[Any]) -> None:
        """List items of built-in kinds come without apiVersion and kind."""
        for item in items:
            item.setdefault("apiVersion", self.resource.api_version)
            item.setdefault("kind", self.resource.kind)
            if not self._keep:
                _without_managed_fields(item)


def _of(generic: Any, type_: Any) -> Any:
    return generic[type_]


def head(raw: bytes | Raw) -> ObjectMeta:
    """Only the metadata; empty where even that is odd."""
    try:
        return _HEAD.decode(raw).metadata
    except msgspec.DecodeError:
        return ObjectMeta()


def body(obj: Object | Mapping[str, Any]) -> bytes:
    """An object on its way out."""
    return kinds.encode(obj) if isinstance(obj, Object) else msgspec.json.encode(obj)


def _without_managed_fields(obj: Json) -> Json:
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    return obj
