"""
Decodes JSON of built-in kinds as Go does and returns the JSON that Go would encode.

Go drops unknown fields, rejects wrong types, omits empty fields and always encodes some others
(``status: {}``). All of this follows from the struct tags in ``data/types.json.gz``. Decoders are
compiled once per struct as closures and report unknown fields in ``unknown``.
"""

import base64
import binascii
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from moxwell.api import quantity
from moxwell.embedded.apiserver import status_errors

Unknown = list[str] | None
Read = Callable[[Any, str, Unknown], Any]
Empty = Callable[[Any], bool]
FieldRow = tuple[str, int, str, str]  # JSON name, protobuf number, type name, flags
_NUMBERS = ("int", "int32", "int64", "uint8", "uint16", "uint32")
_LIMITS = {
    "int32": 2**31,
    "int64": 2**63,
    "int": 2**63,
    "uint8": 2**8,
    "uint16": 2**16,
    "uint32": 2**32,
}


_KINDS = {"str": "string", "dict": "object", "list": "array"}


class GoTypeMismatch(status_errors.StatusError):
    """A value of the wrong type for its Go struct field."""

    def __init__(self, message: str) -> None:
        super().__init__(400, "BadRequest", message)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return _KINDS.get(type(value).__name__, "value")


def shown(word: str) -> str:
    """Format a type name as in Go's error messages."""
    if word.startswith("*"):
        return shown(word[1:])
    if word.startswith("["):
        return "[]" + shown(word[1:])
    if word.startswith("{"):
        return "map[string]" + shown(word[1:])
    if word.startswith("@"):
        return word.rsplit("/", 1)[-1]
    return {"bytes": "[]uint8", "float": "float64"}.get(word, word)


def _mismatch(value: Any, path: str, word: str) -> GoTypeMismatch:
    return GoTypeMismatch(
        f"json: cannot unmarshal {_kind(value)} into Go value of type {shown(word)}#{path}"
    )


def _string(value: Any, path: str, _: Unknown) -> Any:
    if value.__class__ is str:
        return value
    if value is None:
        return ""
    raise _mismatch(value, path, "string")


def _bool(value: Any, path: str, _: Unknown) -> Any:
    if value is True or value is False:
        return value
    if value is None:
        return False
    raise _mismatch(value, path, "bool")


def _number(word: str) -> Read:
    limit = _LIMITS[word]
    lowest = 0 if word.startswith("u") else -limit

    def read(value: Any, path: str, _: Unknown) -> Any:
        if value is None:
            return 0
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value.__class__ is not int:
            if isinstance(value, float):
                raise GoTypeMismatch(
                    f"json: cannot unmarshal number {value} into Go value of type {word}#{path}"
                )
            raise _mismatch(value, path, word)
        if not lowest <= value < limit:
            raise GoTypeMismatch(
                f"json: cannot unmarshal number {value} into Go value of type {word}#{path}"
            )
        return value

    return read


def _float(value: Any, path: str, _: Unknown) -> Any:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _mismatch(value, path, "float64")
    return value


def _bytes(value: Any, path: str, _: Unknown) -> Any:
    if value is None:
        return None
    if value.__class__ is not str:
        raise _mismatch(value, path, "bytes")
    try:
        return base64.b64encode(base64.b64decode(value.replace("\n", ""), validate=True)).decode()
    except (binascii.Error, ValueError):
        at = next((i for i, c in enumerate(value) if not (c.isalnum() or c in "+/=")), len(value))
        raise GoTypeMismatch(f"illegal base64 data at input byte {at}") from None


def _time(micro: bool) -> Read:
    layout = "2006-01-02T15:04:05.000000Z07:00" if micro else "2006-01-02T15:04:05Z07:00"

    def read(value: Any, path: str, _: Unknown) -> Any:
        if value is None:
            return None
        if value.__class__ is not str:
            raise _mismatch(value, path, "string")
        if not micro and len(value) == 20 and value[-1] == "Z" and value[10] == "T":
            return value
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            raise GoTypeMismatch(
                f'parsing time "{value}" as "{layout}": cannot parse "{value}"'
            ) from None
        if at.tzinfo is None:
            raise GoTypeMismatch(
                f'parsing time "{value}" as "{layout}": cannot parse "" as "Z07:00"'
            )
        at = at.astimezone(UTC)
        text = at.strftime("%Y-%m-%dT%H:%M:%S")
        return f"{text}.{at.microsecond:06d}Z" if micro else f"{text}Z"

    return read


def _quantity(value: Any, path: str, _: Unknown) -> Any:
    if value is None:
        return "0"
    try:
        return quantity.canonical(value if isinstance(value, str) else str(value))
    except quantity.InvalidQuantity:
        raise GoTypeMismatch(quantity.GO_ERROR) from None


def _int_or_string(value: Any, path: str, _: Unknown) -> Any:
    if value is None:
        return 0
    if value.__class__ is str or value.__class__ is int:
        return value
    raise _mismatch(value, path, "int32")


def _as_is(value: Any, path: str, _: Unknown) -> Any:
    return value


_SIMPLE: Mapping[str, Read] = {
    "string": _string,
    "bool": _bool,
    "float": _float,
    "bytes": _bytes,
    "Time": _time(micro=False),
    "MicroTime": _time(micro=True),
    "Duration": _string,
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
    "Raw": _as_is,
}
_ZERO: Mapping[str, Any] = {
    "string": "",
    "bool": False,
    "float": 0,
    "Quantity": "0",
    "IntOrString": 0,
}


class GoTypes:
    """Compiles decoders from the table, each once."""

    def __init__(self, table: Mapping[str, Sequence[FieldRow]]) -> None:
        self.table = table
        self._structs: dict[str, Read] = {}

    def fields(self, name: str) -> list[FieldRow]:
        """Return the fields of a struct, with inlined structs expanded."""
        found: list[FieldRow] = []
        for row in self.table[name]:
            if "i" in row[3] or not row[0]:
                found += self.fields(row[2].lstrip("*@"))
            else:
                found.append(row)
        return found

    def reader(self, word: str) -> Read:
        """Return the decoder of a type."""
        if word.startswith("*"):
            return _pointer(self.reader(word[1:]))
        if word.startswith("["):
            return _slice(word, self.reader(word[1:]))
        if word.startswith("{"):
            return _map(word, self.reader(word[1:]))
        if word.startswith("@"):
            return self.struct(word[1:])
        if word in _NUMBERS:
            return _number(word)
        return _SIMPLE[word] if word in _SIMPLE else self._either(word)

    def _either(self, word: str) -> Read:
        """Return the decoder of a JSONSchemaProps union type."""
        props = "@k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaProps"

        def read(value: Any, path: str, unknown: Unknown) -> Any:
            if isinstance(value, dict):
                return self.reader(props)(value, path, unknown)
            if isinstance(value, list) and word == "OrArray":
                return [self.reader(props)(v, f"{path}[{i}]", unknown) for i, v in enumerate(value)]
            if word == "Strings":
                return _slice("[string", _string)(value, path, unknown)
            return value

        return read

    def struct(self, name: str) -> Read:
        """
        Return the decoder of a struct, compiled on first use because structs can be recursive.
        """

        def late(value: Any, path: str, unknown: Unknown) -> Any:
            read = self._structs.get(name)
            if read is None:
                read = self._structs[name] = self._compile(name)
            return read(value, path, unknown)

        return self._structs.get(name, late)

    def _compile(self, name: str) -> Read:
        plan = {row[0]: self._field(row) for row in self.fields(name)}
        always = [(row[0], *_absent(row)) for row in self.fields(name) if _is_always(row)]
        filled = [
            (key, self.reader(word) if struct else None, zero) for key, word, struct, zero in always
        ]
        return _struct_reader(name, plan, filled)

    def _field(self, row: FieldRow) -> tuple[Read, Empty | None]:
        """Return how a field is decoded and when it is omitted."""
        word, flags = row[2], row[3]
        read = self.reader(word)
        if "o" not in flags and "z" not in flags:
            return read, None
        if word.startswith("*") or word == "Raw":
            return read, _is_none
        if word.startswith("@"):
            zero = self.reader(word)({}, "", None) if "z" in flags else None
            return read, (lambda value: value == zero) if "z" in flags else None
        if word in _NEVER_EMPTY:
            empty = _ZERO.get(word)
            return read, (lambda value: value == empty) if "z" in flags else None
        return read, operator.not_


def _is_none(value: Any) -> bool:
    return value is None


def _is_always(row: FieldRow) -> bool:
    word, flags = row[2], row[3]
    return "z" not in flags and ("o" not in flags or word.startswith("@") or word in _NEVER_EMPTY)


_NEVER_EMPTY = ("Quantity", "IntOrString", "Time", "MicroTime", "Duration")


def _absent(row: FieldRow) -> tuple[str, bool, Any]:
    """
    Return the type name, whether an absent struct is decoded from nothing, and the zero value
    otherwise.
    """
    word = row[2]
    if word.startswith("@"):
        return word, True, None
    if word in _NUMBERS:
        return word, False, 0
    return word, False, _ZERO.get(word)


def _struct_reader(
    name: str,
    plan: Mapping[str, tuple[Read, Empty | None]],
    filled: Sequence[tuple[str, Read | None, Any]],
) -> Read:
    short = name.rsplit(".", 1)[-1]

    def read(value: Any, path: str, unknown: Unknown) -> Any:
        if value is None:
            value = {}
        if value.__class__ is not dict:
            raise _mismatch(value, path, "@" + name)
        made: dict[str, Any] = {}
        for key, given in value.items():
            step = plan.get(key)
            if step is None:
                if unknown is not None:
                    unknown.append(f"{path}.{key}" if path else key)
                continue
            reader, is_empty = step
            try:
                result = reader(given, f"{path}.{key}" if path else key, unknown)
            except GoTypeMismatch as error:
                raise _placed(error, short) from None
            if is_empty is not None and is_empty(result):
                continue
            made[key] = result
        for key, reader_, zero in filled:
            if key not in made:
                made[key] = zero if reader_ is None else reader_({}, f"{path}.{key}", None)
        return made

    return read


def _placed(error: GoTypeMismatch, struct: str) -> GoTypeMismatch:
    """Name the innermost struct in the message, as Go does."""
    text, _, path = error.message.partition("#")
    if not path:
        return error
    dotted = ".".join(part.split("[")[0] for part in path.split("."))
    return GoTypeMismatch(
        text.replace("Go value of type", f"Go struct field {struct}.{dotted} of type")
    )


def _pointer(inner: Read) -> Read:
    def pointer(value: Any, path: str, unknown: Unknown) -> Any:
        return None if value is None else inner(value, path, unknown)

    return pointer


def _slice(word: str, inner: Read) -> Read:
    def slice_(value: Any, path: str, unknown: Unknown) -> Any:
        if value is None:
            return None
        if value.__class__ is not list:
            raise _mismatch(value, path, word)
        return [inner(item, f"{path}[{i}]", unknown) for i, item in enumerate(value)]

    return slice_


def _map(word: str, inner: Read) -> Read:
    def map_(value: Any, path: str, unknown: Unknown) -> Any:
        if value is None:
            return None
        if value.__class__ is not dict:
            raise _mismatch(value, path, word)
        made = {}
        for key, item in value.items():
            try:
                made[key] = inner(item, f"{path}.{key}", unknown)
            except GoTypeMismatch as error:
                raise GoTypeMismatch(error.message.replace(f"#{path}.{key}", f"#{path}")) from None
        return made

    return map_
