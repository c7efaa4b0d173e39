"""
Decodes the YAML of requests to JSON values, within the limits of requests.

The values are built from the parser's events with a stack of our own, because libyaml's and
PyYAML's composers recurse for every level. An alias is expanded to a copy of its value, which
counts towards the limits of values and bytes like any other.
"""

import base64
import binascii
import copy
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import yaml

from moxwell.embedded.apiserver import json_input, limits
from moxwell.errors import Invalid

_TAG = "tag:yaml.org,2002:"
MAX_DIGITS = 64  # of an integer in another base
_SHORT_BOOLEANS = {"y": True, "Y": True, "n": False, "N": False}  # as in go-yaml
_MERGE = object()  # the key <<
_LOWEST_DECODED, _HIGHEST_DECODED = 400_000, 4_000_000  # go-yaml's bounds of the alias ratio


class MalformedYaml(Invalid):
    """The text is not YAML that JSON can express."""


class PlainLoader(yaml.CSafeLoader):
    """A YAML loader that keeps timestamps as strings, as Kubernetes does."""


PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def decode(body: bytes) -> Any:
    """Decode one document."""
    limits.check_body_size(body)
    try:
        return _Builder(PlainLoader(body)).document()
    except yaml.YAMLError as error:
        raise MalformedYaml(" ".join(str(error).split())) from None


@dataclass(slots=True)
class _Frame:
    """A sequence or mapping under construction, and the counts when it began."""

    container: Any
    anchor: str | None
    values: int
    size: int
    key: Any = None
    has_key: bool = False
    merged: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class _Anchor:
    value: Any
    values: int
    size: int


class _Builder:
    """Builds one document from events."""

    def __init__(self, loader: PlainLoader) -> None:
        self._loader = loader
        self._resolve: Any = loader.resolve
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Anchor] = {}
        self._values = self._size = self._aliased = 0
        self._result: Any = None

    def document(self) -> Any:
        documents = 0
        while (event := self._loader.get_event()) is not None:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise MalformedYaml("expected a single document in the stream")
            else:
                self._event(event)
        return self._result

    def _event(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._count(1, len(event.value))
            self._put(self._scalar(event), event.anchor, 1, len(event.value))
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            frame = self._stack.pop()
            values, size = self._values - frame.values, self._size - frame.size
            self._put(_finished(frame), frame.anchor, values, size)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event.anchor or "")

    def _open(self, event: yaml.CollectionStartEvent) -> None:
        if len(self._stack) >= limits.MAX_DEPTH:
            raise MalformedYaml(f"exceeded max depth of {limits.MAX_DEPTH}")
        mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", _TAG + ("map" if mapping else "seq")):
            raise MalformedYaml(f"unsupported tag {event.tag[:80]}")
        made: Any = {} if mapping else []
        self._stack.append(_Frame(made, event.anchor, self._values, self._size))
        self._count(1, 0)

    def _alias(self, name: str) -> None:
        anchor = self._anchors.get(name)
        if anchor is None:
            raise MalformedYaml(f"unknown anchor '{name[:80]}' referenced")
        self._aliased += anchor.values
        self._count(anchor.values, anchor.size)
        decoded, aliased = self._values, self._aliased
        if aliased > 100 and decoded > 1000 and aliased / decoded > _alias_ratio(decoded):
            raise MalformedYaml("document contains excessive aliasing")
        self._put(copy.deepcopy(anchor.value), None, 0, 0)

    def _count(self, values: int, size: int) -> None:
        self._values += values
        self._size += size
        limits.check_values(self._values)
        if self._size > limits.MAX_BODY:
            raise limits.too_large(f"limit is {limits.MAX_BODY}")

    def _scalar(self, event: yaml.ScalarEvent) -> Any:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._resolve(yaml.ScalarNode, event.value, event.implicit)
            if event.implicit[0] and event.value in _SHORT_BOOLEANS:
                return _SHORT_BOOLEANS[event.value]
        if tag == _TAG + "merge":
            in_mapping = self._stack and self._stack[-1].container.__class__ is dict
            return _MERGE if in_mapping and not self._stack[-1].has_key else event.value
        make = _SCALARS.get(tag)
        if make is None:
            raise MalformedYaml(f"unsupported tag {tag[:80]}")
        try:
            return make(self._loader, event.value)
        except (ValueError, KeyError, IndexError, binascii.Error):
            raise MalformedYaml(f"cannot decode {event.value[:40]!r} as {tag[-8:]}") from None

    def _put(self, value: Any, anchor: str | None, values: int, size: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = _Anchor(value, values, size)
        if not self._stack:
            self._result = value
            return
        frame = self._stack[-1]
        if frame.container.__class__ is list:
            frame.container.append(value)
        elif not frame.has_key:
            frame.key, frame.has_key = value if value is _MERGE else _key(value), True
        else:
            _set(frame, value)


def _set(frame: _Frame, value: Any) -> None:
    frame.has_key = False
    if frame.key is not _MERGE:
        frame.container[frame.key] = value
        return
    maps = value if isinstance(value, list) else [value]
    if not all(isinstance(item, dict) for item in maps):
        raise MalformedYaml("map merge requires map or sequence of maps as the value")
    frame.merged = [*(frame.merged or ()), *maps]


def _finished(frame: _Frame) -> Any:
    """Add merged members; explicit ones win, then earlier maps."""
    for item in frame.merged or ():
        for key, value in item.items():
            frame.container.setdefault(key, value)
    return frame.container


def _alias_ratio(decoded: int) -> float:
    """Return the share of aliased values that go-yaml allows."""
    if decoded <= _LOWEST_DECODED:
        return 0.99
    if decoded >= _HIGHEST_DECODED:
        return 0.10
    over = (decoded - _LOWEST_DECODED) / (_HIGHEST_DECODED - _LOWEST_DECODED)
    return 0.99 - 0.89 * over


def _key(value: Any) -> str:
    """Convert a mapping key to a JSON key, as sigs.k8s.io/yaml does."""
    if value.__class__ is str:
        key: str = value
        return key
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    what = "null" if value is None else type(value).__name__
    raise MalformedYaml(f"unsupported map key of type: {what}")


def _integer(loader: PlainLoader, text: str) -> int | float:
    digits = text.replace("_", "")
    decimal = digits.lstrip("+-")[:1] in tuple("123456789") and ":" not in digits
    if decimal or len(digits) > MAX_DIGITS:
        return json_input.integer(digits)
    value: int = loader.construct_yaml_int(yaml.ScalarNode(_TAG + "int", text))
    return value if -(2**63) <= value < 2**63 else float(value)


def _float(loader: PlainLoader, text: str) -> float:
    value: float = loader.construct_yaml_float(yaml.ScalarNode(_TAG + "float", text))
    if math.isinf(value) or math.isnan(value):
        raise MalformedYaml(f"json: unsupported value: {text[:40]}")
    return value


def _bool(loader: PlainLoader, text: str) -> bool:
    value: bool = loader.construct_yaml_bool(yaml.ScalarNode(_TAG + "bool", text))
    return value


def _binary(loader: PlainLoader, text: str) -> str:
    return base64.b64decode("".join(text.split()), validate=True).decode(errors="replace")


_SCALARS: dict[Hashable, Callable[[PlainLoader, str], Any]] = {
    _TAG + "str": lambda loader, text: text,
    _TAG + "int": _integer,
    _TAG + "float": _float,
    _TAG + "bool": _bool,
    _TAG + "null": lambda loader, text: None,
    _TAG + "binary": _binary,
    _TAG + "timestamp": lambda loader, text: text,
    _TAG + "value": lambda loader, text: text,
}
