"""
Conversion between versions of a kind: a hub, spokes around it, and nothing lost on the way.

Each spoke has two pure functions, ``up`` to the hub and ``down`` from it, on plain JSON objects.
They need not be lossless: what the other form cannot express is kept in an annotation and grafted
back on return (:func:`moxwell.api.json_merge.graft`), together with whatever was changed meanwhile. So
``old → new → old`` is the identity even for fields that only ``old`` has, and edits made in either
form survive. Metadata passes through untouched but for that annotation.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from moxwell.api import json_merge, kinds
from moxwell.api.kinds import Object
from moxwell.errors import Invalid, Unsupported

JsonObject = dict[str, Any]
Convert = Callable[[JsonObject], JsonObject]
HUB_DATA = "cluster.x-k8s.io/conversion-data"
SPOKE_DATA = "moxwell.dev/conversion-data-"
H = TypeVar("H", bound=Object)
S = TypeVar("S", bound=Object)


class UnknownVersion(Unsupported):
    """A version that is not served."""

    reason = "VersionUnknown"


class NotConvertible(Invalid):
    """An object that does not fit the version it claims to be."""

    reason = "NotConvertible"


def unchanged(tree: JsonObject) -> JsonObject:
    """For forms that have only one way to say a thing."""
    return tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoke:
    """A version beside the hub. ``canon`` writes an object in the one way it is compared in."""

    version: str
    up: Convert
    down: Convert
    canon: Convert = unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class KindConversion:
    """All versions of one kind."""

    group: str
    kind: str
    hub: str
    spokes: tuple[Spoke, ...] = ()
    canon: Convert = unchanged

    def convert(self, obj: JsonObject, version: str) -> JsonObject:
        """The same object in another version."""
        here = str(obj.get("apiVersion", "")).rpartition("/")[2]
        if here == version:
            return obj
        hub = obj if here == self.hub else self._up(obj, self._spoke(here))
        return hub if version == self.hub else self._down(hub, self._spoke(version))

    def _spoke(self, version: str) -> Spoke:
        for spoke in self.spokes:
            if spoke.version == version:
                return spoke
        known = ", ".join([self.hub, *(spoke.version for spoke in self.spokes)])
        raise UnknownVersion(f"{self.kind} has no version {version!r}; it has {known}")

    def _up(self, obj: JsonObject, spoke: Spoke) -> JsonObject:
        kept, plain = _take(obj, HUB_DATA)
        hub = self._step(spoke.up, plain, self.hub)
        if kept is not None:
            whole = _with(hub, kept)
            back = self._step(spoke.down, whole, spoke.version)
            hub = _graft(whole, self._step(spoke.up, back, self.hub), hub)
        back = self._step(spoke.down, hub, spoke.version)
        lost = not json_merge.json_equal(_said(spoke.canon(plain)), _said(spoke.canon(back)))
        return _note(hub, SPOKE_DATA + spoke.version, _said(plain) if lost else None)

    def _down(self, hub: JsonObject, spoke: Spoke) -> JsonObject:
        kept, plain = _take(hub, SPOKE_DATA + spoke.version)
        obj = self._step(spoke.down, plain, spoke.version)
        if kept is not None:
            whole = _with(obj, kept)
            there = self._step(spoke.up, whole, self.hub)
            obj = _graft(whole, self._step(spoke.down, there, spoke.version), obj)
        there = self._step(spoke.up, obj, self.hub)
        lost = not json_merge.json_equal(_said(self.canon(plain)), _said(self.canon(there)))
        return _note(obj, HUB_DATA, _said(plain) if lost else None)

    def _step(self, step: Convert, obj: JsonObject, version: str) -> JsonObject:
        """One function, with the version set and the metadata carried along."""
        made = step(obj)
        head = {"apiVersion": f"{self.group}/{version}", "kind": self.kind}
        return head | {"metadata": obj.get("metadata", {})} | _said(made)


def typed_spoke(
    spoke: type[S], hub: type[H], up: Callable[[S], H], down: Callable[[H], S]
) -> Spoke:
    """A spoke whose two functions are written on Structs."""
    return Spoke(
        version=spoke.resource.version,
        up=lambda tree: kinds.as_dict(up(decode_object(spoke, tree))),
        down=lambda tree: kinds.as_dict(down(decode_object(hub, tree))),
        canon=canonical_form(spoke),
    )


def canonical_form(kind: type[Object]) -> Convert:
    """All fields of the Struct, defaults too: so written, equal objects are equal trees."""
    return lambda tree: dict(_full(decode_object(kind, tree)))


def _full(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return {field.encode_name: _full(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {key: _full(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_full(inner) for inner in value]
    return value


def decode_object(kind: type[H], tree: Mapping[str, Any]) -> H:
    """A plain object as a Struct."""
    try:
        return msgspec.convert(json_merge.without_nulls(tree), kind)
    except msgspec.ValidationError as error:
        name = (tree.get("metadata") or {}).get("name", "")
        raise NotConvertible(f"{kind.resource.kind} {name!r} is malformed: {error}") from error


def _said(obj: JsonObject) -> JsonObject:
    return {k: v for k, v in obj.items() if k not in ("apiVersion", "kind", "metadata")}


def _with(obj: JsonObject, said: JsonObject) -> JsonObject:
    head = {k: obj[k] for k in ("apiVersion", "kind", "metadata") if k in obj}
    return head | said


def _graft(full: JsonObject, shown: JsonObject, now: JsonObject) -> JsonObject:
    return _with(now, json_merge.three_way_merge(_said(full), _said(shown), _said(now)))


def _take(obj: JsonObject, annotation: str) -> tuple[JsonObject | None, JsonObject]:
    """What an annotation keeps, and the object without it."""
    metadata = dict(obj.get("metadata") or {})
    annotations = dict(metadata.get("annotations") or {})
    text = annotations.pop(annotation, None)
    if text is None:
        return None, obj
    metadata["annotations"] = annotations
    if not annotations:
        del metadata["annotations"]
    try:
        kept = msgspec.json.decode(text)
    except msgspec.DecodeError:
        kept = None  # somebody else's, or broken: the object itself still tells most of it
    return (_said(kept) if isinstance(kept, dict) else None), {**obj, "metadata": metadata}


def _note(obj: JsonObject, annotation: str, kept: JsonObject | None) -> JsonObject:
    if kept is None:
        return obj
    metadata = dict(obj.get("metadata") or {})
    text = msgspec.json.encode(kept, order="sorted").decode()
    metadata["annotations"] = {**(metadata.get("annotations") or {}), annotation: text}
    return {**obj, "metadata": metadata}
