"""
Lossless conversion between the versions of a kind: one hub version and spokes.

Each spoke has two pure functions on JSON objects, ``to_hub`` and ``from_hub``, which may lose
fields. What the target version cannot express is stored in an annotation of the converted object.
On the way back the annotation is combined with later edits by
:func:`moxwell.api.json_merge.three_way_merge`, so a round trip is the identity and edits in either
version survive. Other metadata is not changed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from moxwell.api import json_merge
from moxwell.api.kinds import Object
from moxwell.errors import Invalid, Unsupported

JsonObject = dict[str, Any]
Convert = Callable[[JsonObject], JsonObject]
HUB_DATA = "cluster.x-k8s.io/conversion-data"
SPOKE_DATA = "moxwell.dev/conversion-data-"
H = TypeVar("H", bound=Object)
S = TypeVar("S", bound=Object)


class UnknownVersion(Unsupported):
    """The requested version is not served."""

    reason = "VersionUnknown"


class NotConvertible(Invalid):
    """The object does not match the schema of its version."""

    reason = "NotConvertible"


def unchanged(obj: JsonObject) -> JsonObject:
    """Return the argument; the default for versions without aliases."""
    return obj


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoke:
    """A version other than the hub. ``canonical`` normalizes an object for comparison."""

    version: str
    to_hub: Convert
    from_hub: Convert
    canonical: Convert = unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class KindConversion:
    """Converts objects of one kind between all of its versions."""

    group: str
    kind: str
    hub: str
    spokes: tuple[Spoke, ...] = ()
    canonical: Convert = unchanged

    def convert(self, obj: JsonObject, version: str) -> JsonObject:
        """Convert the object to the given version."""
        current = str(obj.get("apiVersion", "")).rpartition("/")[2]
        if current == version:
            return obj
        hub = obj if current == self.hub else self._to_hub(obj, self._spoke(current))
        return hub if version == self.hub else self._from_hub(hub, self._spoke(version))

    def _spoke(self, version: str) -> Spoke:
        for spoke in self.spokes:
            if spoke.version == version:
                return spoke
        known = ", ".join([self.hub, *(spoke.version for spoke in self.spokes)])
        raise UnknownVersion(f"{self.kind} has no version {version!r}; it has {known}")

    def _to_hub(self, obj: JsonObject, spoke: Spoke) -> JsonObject:
        stored, plain = _pop_annotation(obj, HUB_DATA)
        hub = self._run(spoke.to_hub, plain, self.hub)
        if stored is not None:
            restored = _with_content(hub, stored)
            back = self._run(spoke.from_hub, restored, spoke.version)
            hub = _merge_content(restored, self._run(spoke.to_hub, back, self.hub), hub)
        back = self._run(spoke.from_hub, hub, spoke.version)
        lost = not json_merge.json_equal(
            _content(spoke.canonical(plain)), _content(spoke.canonical(back))
        )
        return _set_annotation(hub, SPOKE_DATA + spoke.version, _content(plain) if lost else None)

    def _from_hub(self, hub: JsonObject, spoke: Spoke) -> JsonObject:
        stored, plain = _pop_annotation(hub, SPOKE_DATA + spoke.version)
        obj = self._run(spoke.from_hub, plain, spoke.version)
        if stored is not None:
            restored = _with_content(obj, stored)
            hub_again = self._run(spoke.to_hub, restored, self.hub)
            obj = _merge_content(restored, self._run(spoke.from_hub, hub_again, spoke.version), obj)
        hub_again = self._run(spoke.to_hub, obj, self.hub)
        lost = not json_merge.json_equal(
            _content(self.canonical(plain)), _content(self.canonical(hub_again))
        )
        return _set_annotation(obj, HUB_DATA, _content(plain) if lost else None)

    def _run(self, convert: Convert, obj: JsonObject, version: str) -> JsonObject:
        """Run one conversion function, set the version and copy the metadata."""
        converted = convert(obj)
        head = {"apiVersion": f"{self.group}/{version}", "kind": self.kind}
        return head | {"metadata": obj.get("metadata", {})} | _content(converted)


def canonical_form(kind: type[Object]) -> Convert:
    """
    Return a function that writes all fields including defaults, so that equal objects are equal
    JSON.
    """
    return lambda obj: dict(_all_fields(decode_object(kind, obj)))


def _all_fields(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        return {shown: _all_fields(getattr(value, name)) for name, shown in names}
    if isinstance(value, Mapping):
        return {key: _all_fields(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_all_fields(inner) for inner in value]
    return value


def decode_object(kind: type[H], obj: Mapping[str, Any]) -> H:
    """Decode a JSON object into the Struct of a kind."""
    try:
        return msgspec.convert(json_merge.without_nulls(obj), kind)
    except msgspec.ValidationError as error:
        name = (obj.get("metadata") or {}).get("name", "")
        raise NotConvertible(f"{kind.resource.kind} {name!r} is malformed: {error}") from error


def _content(obj: JsonObject) -> JsonObject:
    return {k: v for k, v in obj.items() if k not in ("apiVersion", "kind", "metadata")}


def _with_content(obj: JsonObject, content: JsonObject) -> JsonObject:
    head = {k: obj[k] for k in ("apiVersion", "kind", "metadata") if k in obj}
    return head | content


def _merge_content(ours: JsonObject, base: JsonObject, theirs: JsonObject) -> JsonObject:
    return _with_content(
        theirs, json_merge.three_way_merge(_content(base), _content(ours), _content(theirs))
    )


def _pop_annotation(obj: JsonObject, annotation: str) -> tuple[JsonObject | None, JsonObject]:
    """Split an object into the content of an annotation and the object without it."""
    metadata = dict(obj.get("metadata") or {})
    annotations = dict(metadata.get("annotations") or {})
    text = annotations.pop(annotation, None)
    if text is None:
        return None, obj
    metadata["annotations"] = annotations
    if not annotations:
        del metadata["annotations"]
    try:
        stored = msgspec.json.decode(text)
    except msgspec.DecodeError:
        stored = None  # written by another program or damaged: convert without it
    return (_content(stored) if isinstance(stored, dict) else None), {**obj, "metadata": metadata}


def _set_annotation(obj: JsonObject, annotation: str, stored: JsonObject | None) -> JsonObject:
    if stored is None:
        return obj
    metadata = dict(obj.get("metadata") or {})
    text = msgspec.json.encode(stored, order="sorted").decode()
    metadata["annotations"] = {**(metadata.get("annotations") or {}), annotation: text}
    return {**obj, "metadata": metadata}
