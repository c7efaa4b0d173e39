"""Go's predefined template functions."""

from typing import Any
from urllib.parse import quote_plus

from moxwell.bootstrap.go_templates import printing
from moxwell.bootstrap.go_templates.errors import FunctionFailed
from moxwell.bootstrap.go_templates.formatting import sprint, sprintf, sprintln
from moxwell.bootstrap.go_templates.signatures import TemplateFunction, signature
from moxwell.bootstrap.go_templates.values import (
    NO_VALUE,
    SizedInt,
    StringMap,
    Strings,
    go_type,
    is_nil,
    is_struct,
    truth,
)

SHORT_CIRCUIT = ("and", "or")


def builtin_functions() -> dict[str, TemplateFunction]:
    """Return the functions by name; ``and`` and ``or`` are executed argument by argument."""
    return {
        "and": signature(lambda *values: values[-1], "any", variadic="any"),
        "or": signature(lambda *values: values[-1], "any", variadic="any"),
        "not": signature(lambda value: not truth(value), "any"),
        "len": signature(_length, "any"),
        "index": signature(_index, "any", variadic="any"),
        "slice": signature(_slice, "any", variadic="any"),
        "call": signature(_call, "any", variadic="any"),
        "print": signature(lambda *values: sprint(values), variadic="any"),
        "println": signature(lambda *values: sprintln(values), variadic="any"),
        "printf": signature(lambda text, *values: sprintf(text, values), "string", variadic="any"),
        "html": signature(lambda *values: printing.html(_text(values)), variadic="any"),
        "js": signature(lambda *values: printing.javascript(_text(values)), variadic="any"),
        "urlquery": signature(lambda *values: quote_plus(_text(values), safe="~"), variadic="any"),
        "eq": signature(_equal, "any", variadic="any"),
        "ne": signature(lambda one, two: not _equal(one, two), "any", "any"),
        "lt": signature(_less, "any", "any"),
        "le": signature(lambda one, two: _less(one, two) or _equal(one, two), "any", "any"),
        "gt": signature(lambda one, two: not (_less(one, two) or _equal(one, two)), "any", "any"),
        "ge": signature(lambda one, two: not _less(one, two), "any", "any"),
    }


def _text(values: tuple[Any, ...]) -> str:
    """The text that is escaped; a value that holds nothing is printed as an action prints it."""
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return sprint(tuple(NO_VALUE.value if is_nil(value) else value for value in values))


def _length(value: Any) -> int:
    if is_nil(value):
        raise FunctionFailed("len of nil pointer")
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, list | tuple | dict):
        return len(value)
    raise FunctionFailed(f"len of type {go_type(value)}")


def _index(value: Any, *keys: Any) -> Any:
    if is_nil(value):
        raise FunctionFailed("index of untyped nil")
    for key in keys:
        value = _entry(value, key)
    return value


def _entry(value: Any, key: Any) -> Any:
    if isinstance(value, dict):
        if not isinstance(key, str):
            raise FunctionFailed(f"value has type {go_type(key)}; should be string")
        return value.get(key, "" if isinstance(value, StringMap) else NO_VALUE)
    if isinstance(value, list | tuple | str):
        items = value.encode() if isinstance(value, str) else value
        found = items[_position(key, len(items))]
        return SizedInt(found, "uint8") if isinstance(value, str) else found
    if is_nil(value):
        raise FunctionFailed("index of nil pointer")
    raise FunctionFailed(f"can't index item of type {go_type(value)}")


def _position(key: Any, length: int, *, end: bool = False) -> int:
    if is_nil(key):
        raise FunctionFailed("cannot index slice/array with nil")
    if isinstance(key, bool) or not isinstance(key, int):
        raise FunctionFailed(f"cannot index slice/array with type {go_type(key)}")
    if not 0 <= key < length + end:
        raise FunctionFailed(f"index out of range: {int(key)}")
    return int(key)


def _slice(value: Any, *bounds: Any) -> Any:
    if is_nil(value):
        raise FunctionFailed("slice of untyped nil")
    if len(bounds) > 3:
        raise FunctionFailed(f"too many slice indexes: {len(bounds)}")
    if not isinstance(value, list | tuple | str):
        raise FunctionFailed(f"can't slice item of type {go_type(value)}")
    if isinstance(value, str) and len(bounds) == 3:
        raise FunctionFailed("cannot 3-index slice a string")
    items = value.encode() if isinstance(value, str) else value
    at = [_position(bound, len(items), end=True) for bound in bounds]
    start, stop = at[0] if at else 0, at[1] if len(at) > 1 else len(items)
    if start > stop:
        raise FunctionFailed(f"invalid slice index: {start} > {stop}")
    part = items[start:stop]
    if isinstance(part, bytes):
        return part.decode(errors="replace")
    return Strings(part) if isinstance(value, Strings) else part


def _call(value: Any, *arguments: Any) -> Any:
    if is_nil(value):
        raise FunctionFailed("call of nil")
    raise FunctionFailed(f"non-function of type {go_type(value)}")


def _basic_kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    return {float: "float", str: "string"}.get(type(value), "")


def _equal(first: Any, *others: Any) -> bool:
    if not others:
        raise FunctionFailed("missing argument for comparison")
    return any(_same(first, other) for other in others)


def _same(one: Any, two: Any) -> bool:
    kinds = _basic_kind(one), _basic_kind(two)
    if is_nil(one) or is_nil(two):
        return is_nil(one) and is_nil(two)
    if kinds[0] != kinds[1]:
        raise FunctionFailed("incompatible types for comparison")
    if not kinds[0] and not is_struct(one):
        raise FunctionFailed(f"non-comparable type {printing.show(one)}: {go_type(one)}")
    return bool(one == two)


def _less(one: Any, two: Any) -> bool:
    kinds = _basic_kind(one), _basic_kind(two)
    if not all(kinds):
        raise FunctionFailed("invalid type for comparison")
    if kinds[0] != kinds[1]:
        raise FunctionFailed("incompatible types for comparison")
    if kinds[0] == "bool":
        raise FunctionFailed("invalid type for comparison")
    return bool(one < two)
