"""
Decodes protobuf request bodies of built-in kinds to JSON.

A body is ``k8s\\0`` and a ``runtime.Unknown`` with the kind and the message; fields come from the
table of Go types. Responses are JSON only, which every client accepts. Go always encodes
non-pointer zero values; the decoder of the kind drops those that JSON omits.
"""

import base64
import math
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from moxwell.embedded.apiserver import json_input, limits, status_errors
from moxwell.embedded.apiserver.builtin.kinds import KINDS
from moxwell.embedded.apiserver.builtin.model import BuiltinTypeData
from moxwell.errors import Invalid

MAGIC = b"k8s\x00"
MAX_SHOWN = 200  # characters of an error
_EXTRA = {
    ("policy/v1", "Eviction"): "k8s.io/api/policy/v1.Eviction",
    ("autoscaling/v1", "Scale"): "k8s.io/api/autoscaling/v1.Scale",
    ("authentication.k8s.io/v1", "TokenRequest"): "k8s.io/api/authentication/v1.TokenRequest",
}
_DELETE = "k8s.io/apimachinery/pkg/apis/meta/v1.DeleteOptions"
_PROPS = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaProps"
Wire = int | bytes


class MalformedProtobuf(Invalid):
    """The body is not a protobuf message."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode a varint; returns the value and the next offset."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise MalformedProtobuf("unexpected EOF")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, Wire]]:
    """Yield number and raw value of every field."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        match tag & 7:
            case 0:
                value, at = varint(data, at)
                yield tag >> 3, value
            case 2:
                size, at = varint(data, at)
                if at + size > len(data):
                    raise MalformedProtobuf("unexpected EOF")
                yield tag >> 3, data[at : at + size]
                at += size
            case 1 | 5 as kind:
                size = 8 if kind == 1 else 4
                if at + size > len(data):
                    raise MalformedProtobuf("unexpected EOF")
                yield tag >> 3, data[at : at + size]
                at += size
            case kind:
                raise MalformedProtobuf(f"wire type {kind} is not known")


def signed(value: Wire) -> int:
    if isinstance(value, bytes) and len(value) > 8:
        raise MalformedProtobuf("a number was expected, a message was found")
    number = value if isinstance(value, int) else int.from_bytes(value, "little")
    return number - (1 << 64) if number >= 1 << 63 else number


def _bytes(value: Wire) -> bytes:
    if isinstance(value, int):
        raise MalformedProtobuf("a message was expected, a number was found")
    return value


def _text(value: Wire) -> str:
    return _bytes(value).decode()


def _time(value: Wire, *, micro: bool) -> str | None:
    found = {number: signed(v) for number, v in fields(_bytes(value))}
    seconds, nanos = found.get(1, 0), found.get(2, 0)
    if not found or seconds <= -62135596800:  # Go encodes the zero time as an empty message
        return None
    at = datetime.fromtimestamp(seconds, UTC)
    text = at.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{nanos // 1000:06d}Z" if micro else f"{text}Z"


def _duration(value: Wire) -> str:
    found = {number: signed(v) for number, v in fields(_bytes(value))}
    return f"{found.get(1, 0) / 1e9:g}s"


def _quantity(value: Wire) -> str:
    return next((_text(v) for number, v in fields(_bytes(value)) if number == 1), "0") or "0"


def _int_or_string(value: Wire) -> int | str:
    found = dict(fields(_bytes(value)))
    return _text(found.get(3, b"")) if found.get(1) == 1 else signed(found.get(2, 0))


def _raw(value: Wire) -> Any:
    found = next((_bytes(v) for number, v in fields(_bytes(value)) if number == 1), b"")
    return json_input.decode(found) if found else None


def _strings(value: Wire) -> list[str]:
    return [_text(v) for number, v in fields(_bytes(value)) if number == 1]


_SIMPLE: dict[str, Callable[[Wire], Any]] = {
    "string": _text,
    "bool": bool,
    "bytes": lambda v: base64.b64encode(_bytes(v)).decode(),
    "Time": lambda v: _time(v, micro=False),
    "MicroTime": lambda v: _time(v, micro=True),
    "Duration": _duration,
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
    "Raw": _raw,
    "Strings": _strings,
}


class ProtobufDecoder:
    """Decodes protobuf bodies."""

    def __init__(self, tables: BuiltinTypeData) -> None:
        self._tables = tables
        self._types: dict[tuple[str, str], str] = dict(_EXTRA)
        for row in KINDS:
            version = f"{row.group}/{row.version}" if row.group else row.version
            self._types[version, row.kind] = row.go
        self._plans: dict[str, dict[int, tuple[str, str]]] = {}

    def decode(self, body: bytes) -> dict[str, Any]:
        """Decode the object of a body."""
        limits.check_body_size(body)
        try:
            found = self._decode(body)
            limits.check_value(found)
        except (Invalid, ValueError, OverflowError, OSError, struct.error) as error:
            raise status_errors.bad_request(f"proto: {str(error)[:MAX_SHOWN]}") from None
        return found

    def _decode(self, body: bytes) -> dict[str, Any]:
        if not body.startswith(MAGIC):
            raise MalformedProtobuf(
                "provided data does not appear to be a protobuf message, expected prefix 6b383300"
            )
        version, kind, raw = "", "", b""
        for number, value in fields(body[4:]):
            if number == 1:
                for inner, text in fields(_bytes(value)):
                    version = _text(text) if inner == 1 else version
                    kind = _text(text) if inner == 2 else kind
            elif number == 2:
                raw = _bytes(value)
        name = _DELETE if kind == "DeleteOptions" else self._types.get((version, kind))
        if name is None:
            raise MalformedProtobuf(f"no kind {kind!r} is registered for version {version!r}")
        return {**_Messages(self.plan).message(name, raw), "apiVersion": version, "kind": kind}

    def plan(self, name: str) -> dict[int, tuple[str, str]]:
        """Map field numbers to JSON name (empty: inlined) and type name."""
        if name not in self._plans:
            rows = self._tables.types.table[name]
            self._plans[name] = {
                number: ("" if "i" in flags or not json_name else json_name, word)
                for json_name, number, word, flags in rows
                if number
            }
        return self._plans[name]


class _Messages:
    """Decodes the messages of one body, and counts their fields and depth."""

    def __init__(self, plan: Callable[[str], dict[int, tuple[str, str]]]) -> None:
        self._plan = plan
        self._fields = self._depth = 0

    def message(self, name: str, data: bytes) -> dict[str, Any]:
        """Decode a message."""
        self._depth += 1
        if self._depth > limits.MAX_DEPTH:
            raise MalformedProtobuf("exceeded max depth")
        plan, made = self._plan(name), dict[str, Any]()
        for number, value in self._counted(data):
            if number not in plan:
                continue
            json_name, word = plan[number]
            if not json_name:
                made |= self.message(word.lstrip("*@"), _bytes(value))
            else:
                self._put(made, json_name, word.removeprefix("*"), value)
        self._depth -= 1
        return made

    def _counted(self, data: bytes) -> Iterator[tuple[int, Wire]]:
        for found in fields(data):
            self._fields += 1
            limits.check_values(self._fields)
            yield found

    def _put(self, made: dict[str, Any], name: str, word: str, value: Wire) -> None:
        if word.startswith("["):
            listed = made.setdefault(name, [])
            inner = word[1:]
            if isinstance(value, bytes) and inner in ("int32", "int64", "bool"):
                listed += self._packed(value)
            else:
                listed.append(self._value(inner, value))
        elif word.startswith("{"):
            entry = dict(fields(_bytes(value)))
            key, empty = _text(entry.get(1, b"")), b"" if word[1:] not in ("int32", "int64") else 0
            made.setdefault(name, {})[key] = self._value(word[1:], entry.get(2, empty))
        else:
            made[name] = self._value(word, value)

    def _packed(self, data: bytes) -> list[int]:
        found, at = [], 0
        while at < len(data):
            value, at = varint(data, at)
            found.append(signed(value))
            self._fields += 1
            limits.check_values(self._fields)
        return found

    def _value(self, word: str, value: Wire) -> Any:
        word = word.removeprefix("*")
        if word.startswith("@"):
            return self.message(word[1:], _bytes(value))
        if word in _SIMPLE:
            return _SIMPLE[word](value)
        if word in ("OrArray", "OrBool", "OrStrings"):
            return self._either(word, _bytes(value))
        if word.startswith("["):
            return [
                self._value(word[1:], v)
                for number, v in self._counted(_bytes(value))
                if number == 1
            ]
        if word == "float":
            return _float(_bytes(value))
        return signed(value)

    def _either(self, word: str, data: bytes) -> Any:
        found = list(self._counted(data))
        schema = 2 if word == "OrBool" else 1
        one = next((v for number, v in found if number == schema), None)
        if one is not None:
            return self.message(_PROPS, _bytes(one))
        if word == "OrBool":
            return any(v for number, v in found if number == 1)
        items = [_bytes(v) for number, v in found if number == 2]
        return [
            item.decode() if word == "OrStrings" else self.message(_PROPS, item) for item in items
        ]


def _float(value: bytes) -> float:
    found: float = struct.unpack("<d", value)[0]
    if math.isnan(found) or math.isinf(found):
        raise MalformedProtobuf(f"unsupported value: {found}")
    return int(found) if found.is_integer() else found
