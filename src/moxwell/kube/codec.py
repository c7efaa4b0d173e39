"""
Encodes and decodes the objects of one kind: Structs, or dicts for a bare Resource.

Typed objects are decoded straight from bytes. Go programs write ``null`` for some empty lists and
maps, which a strict decoder rejects; such an object is decoded again without its nulls. An object
that still does not match its declaration is ``UnreadableObject``: a single one raises, one in a
list or watch is reported separately and does not hide the others.
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


class ObjectNotReadable(Invalid):
    """An object does not match the declaration of its kind."""

    reason = "UnreadableObject"

    def __init__(self, kind: str, key: str, why: str) -> None:
        super().__init__(f"{kind} {key} cannot be read: {why}")
        self.kind, self.key = kind, key


class UnreadableObject(Struct, frozen=True):
    """An object that could not be decoded, and why."""

    metadata: ObjectMeta
    error: ObjectNotReadable
    type: str = ""  # of its watch event


class WatchEvent(Struct, Generic[T], frozen=True):
    """One event of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: T


class Bookmark(Struct, frozen=True):
    """Every change up to this version was sent; or the initial events are complete."""

    resource_version: str
    initial_end: bool = False


class Page(Struct, Generic[T], frozen=True):
    """The objects of a list page, its resource version and its continue token."""

    items: tuple[T, ...]
    metadata: ListMeta
    unreadable: tuple[UnreadableObject, ...] = ()

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
    """Decodes and encodes objects of one kind."""

    def __init__(self, kind: type[T] | Resource, *, keep_managed_fields: bool = False) -> None:
        self.typed = not isinstance(kind, Resource)
        self.resource: Resource = kind if isinstance(kind, Resource) else cast(Any, kind).resource
        self._type: Any = kind if self.typed else Json
        self._one: Any = msgspec.json.Decoder(self._type)
        self._list: Any = msgspec.json.Decoder(_of(_List, self._type))
        self._change: Any = msgspec.json.Decoder(_of(WatchEvent, self._type))
        self._keep = keep_managed_fields or self.typed

    def one(self, raw: bytes | Raw) -> T:
        """One object; raises ObjectNotReadable."""
        try:
            found = self._one.decode(raw)
        except msgspec.ValidationError:
            return self._again(raw)
        except msgspec.DecodeError as error:
            raise ObjectNotReadable(self.resource.kind, "", str(error)) from error
        return cast(T, found if self._keep else _without_managed_fields(found))

    def page(self, raw: bytes) -> Page[T]:
        """One page of a list."""
        try:
            found = self._list.decode(raw)
        except msgspec.ValidationError:
            return self._page_apart(raw)
        except msgspec.DecodeError as error:
            raise ObjectNotReadable(f"{self.resource.kind} list", "", str(error)) from error
        items = found.items or []
        if not self.typed:
            self._complete(items)
        return Page(tuple(items), found.metadata)

    def change(self, line: bytes) -> WatchEvent[T] | Bookmark | UnreadableObject:
        """One line of a watch; raises the error of an ERROR event."""
        try:
            found: WatchEvent[T] = self._change.decode(line)
        except msgspec.DecodeError:
            return self._odd(line)
        if not self.typed:
            self._complete([found.object])
        return found

    def _odd(self, line: bytes) -> WatchEvent[T] | Bookmark | UnreadableObject:
        """A line that is not a plain change: a bookmark, an error, or an object to decode again."""
        try:
            event = _EVENT.decode(line)
        except msgspec.DecodeError as error:
            raise ObjectNotReadable(f"{self.resource.kind} watch event", "", str(error)) from error
        if event.type == "BOOKMARK":
            meta = head(event.object)
            return Bookmark(meta.resource_version, meta.annotations.get(INITIAL_END) == "true")
        if event.type == "ERROR":
            raise error_for(_STATUS.decode(event.object))
        try:
            return WatchEvent(cast(Any, event.type), self.one(event.object))
        except ObjectNotReadable as error:
            return UnreadableObject(head(event.object), error, event.type)

    def _again(self, raw: bytes | Raw) -> T:
        plain = json_merge.without_nulls(_ANY.decode(raw))
        try:
            return cast(T, msgspec.convert(plain, self._type, str_keys=True))
        except msgspec.ValidationError as error:
            raise ObjectNotReadable(self.resource.kind, head(raw).key, str(error)) from error

    def _page_apart(self, raw: bytes) -> Page[T]:
        """Decode item by item when the whole page does not match."""
        apart = _RAW_LIST.decode(raw)
        items: list[T] = []
        bad: list[UnreadableObject] = []
        for item in apart.items or ():
            try:
                items.append(self.one(item))
            except ObjectNotReadable as error:
                bad.append(UnreadableObject(head(item), error))
        return Page(tuple(items), apart.metadata, tuple(bad))

    def _complete(self, items: list[Any]) -> None:
        """List items of built-in kinds have no apiVersion and kind."""
        for item in items:
            item.setdefault("apiVersion", self.resource.api_version)
            item.setdefault("kind", self.resource.kind)
            if not self._keep:
                _without_managed_fields(item)


def _of(generic: Any, type_: Any) -> Any:
    return generic[type_]


def head(raw: bytes | Raw) -> ObjectMeta:
    """The metadata only; empty where it cannot be decoded."""
    try:
        return _HEAD.decode(raw).metadata
    except msgspec.DecodeError:
        return ObjectMeta()


def body(obj: Object | Mapping[str, Any]) -> bytes:
    """The JSON of an object."""
    return kinds.encode(obj) if isinstance(obj, Object) else msgspec.json.encode(obj)


def _without_managed_fields(obj: Json) -> Json:
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    return obj
