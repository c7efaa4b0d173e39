"""
Values of templates with Go's types: what is true, what is zero, what a type is called.

Structs are frozen dataclasses whose fields are made by ``go_field``; ``Strings`` is ``[]string``,
``StringMap`` is ``map[string]string``, ``SizedInt`` an integer of another type than int. A dict is
``map[string]any`` and a list is ``[]any``.
"""

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any


class Absent(Enum):
    """Go's values that hold nothing."""

    NO_VALUE = "<no value>"  # for example a missing key of a map
    NIL_POINTER = "<nil>"  # a field of pointer type that is not set


NO_VALUE, NIL_POINTER = Absent.NO_VALUE, Absent.NIL_POINTER


class Strings(tuple[str, ...]):
    """``[]string``; empty means nil."""

    __slots__ = ()


class StringMap(dict[str, str]):
    """``map[string]string``."""


class SizedInt(int):
    """An integer of a type such as uint32 or int64."""

    go_type: str

    def __new__(cls, value: int, go_type: str) -> "SizedInt":
        made = super().__new__(cls, value)
        made.go_type = go_type
        return made


@dataclasses.dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer that is not nil; it is true whatever it points at, and is printed as that."""

    to: Any


def pointed(value: Any) -> Any:
    """Return what a pointer points at; any other value as it is."""
    return value.to if isinstance(value, Pointer) else value


def go_field(name: str, *, yaml: str = "", omit_empty: bool = False, default: Any = "") -> Any:
    """Declare a field of a struct by its Go name and YAML tag."""
    metadata: dict[str, Any] = {"go": name, "yaml": yaml or name.lower(), "omit_empty": omit_empty}
    metadata["pointer"] = default is None
    if isinstance(default, type):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def optional_field(name: str, yaml: str, default: Any = "") -> Any:
    """Declare a field that YAML leaves out when it is empty; None makes it a pointer."""
    return go_field(name, yaml=yaml, omit_empty=True, default=default)


def is_struct(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type | Pointer)


def struct_fields(value: Any) -> list[tuple[str, Mapping[str, Any], Any]]:
    """Return Go name, metadata and value of the fields of a struct, in order."""
    found: list[tuple[str, Mapping[str, Any], Any]] = []
    for each in dataclasses.fields(value):
        inner = getattr(value, each.name)
        shown = inner
        if each.metadata["pointer"]:
            shown = NIL_POINTER if inner is None else Pointer(inner)
        found.append((str(each.metadata["go"]), each.metadata, shown))
    return found


def is_nil(value: object) -> bool:
    return value is None or isinstance(value, Absent)


def truth(value: object) -> bool:
    """Report whether ``if`` takes the value for true."""
    if isinstance(value, Absent) or value is None:
        return False
    return True if is_struct(value) or isinstance(value, Pointer) else bool(value)


def is_zero(value: object) -> bool:
    """Report whether the value is the zero value of its type."""
    if is_struct(value):
        return all(is_zero(inner) for _, _, inner in struct_fields(value))
    if isinstance(value, list | dict):
        return False  # made by a function or by the caller, so not nil
    return not truth(value)


def go_type(value: object) -> str:
    """Return the name of the value's type as Go prints it."""
    if isinstance(value, Pointer):
        return f"*{go_type(value.to)}"
    if isinstance(value, SizedInt):
        return value.go_type
    if isinstance(value, tuple) and value and is_struct(value[0]):
        return f"[]{go_type(value[0])}"
    if is_struct(value):
        return str(getattr(type(value), "go_type", type(value).__name__))
    names = {
        bool: "bool",
        int: "int",
        float: "float64",
        str: "string",
        Strings: "[]string",
        StringMap: "map[string]string",
        list: "[]interface {}",
        dict: "map[string]interface {}",
    }
    return names.get(type(value), "<nil>")
