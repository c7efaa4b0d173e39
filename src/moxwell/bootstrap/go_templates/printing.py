"""Prints values as Go's fmt does: ``%v``, ``%q`` and floats."""

import re
from decimal import Decimal
from typing import Any

from moxwell.bootstrap.go_templates.values import (
    NO_VALUE,
    Absent,
    StringMap,
    is_struct,
    pointed,
    struct_fields,
)

LARGE_EXPONENT = 6  # from here on floats are printed with an exponent
_ESCAPES = {
    "\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v",
    "\\": r"\\", '"': r"\"",
}  # fmt: skip


def show(value: Any, *, names: bool = False) -> str:
    """Print a value with ``%v``, or ``%+v`` with the names of fields."""
    value = pointed(value)
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return show_float(value)
    if isinstance(value, Absent):
        return "<nil>"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, dict | StringMap):
        inner = (f"{key}:{show(value[key], names=names)}" for key in sorted(value))
        return f"map[{' '.join(inner)}]"
    if isinstance(value, list | tuple):
        return f"[{' '.join(show(item, names=names) for item in value)}]"
    if is_struct(value):
        parts = ((n, show(inner, names=names)) for n, _, inner in struct_fields(value))
        return "{" + " ".join(f"{n}:{text}" if names else text for n, text in parts) + "}"
    return "<nil>"


def printed(value: Any) -> str:
    """Print the value of an action."""
    return NO_VALUE.value if value is NO_VALUE or value is None else show(value)


def show_float(value: float) -> str:
    """Print the shortest decimal that reads back as the same float."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)
    if value == 0:
        return "-0" if sign else "0"
    minus = "-" if sign else ""
    if point - 1 < -4 or point - 1 >= LARGE_EXPONENT:
        mantissa = text[0] + (f".{text[1:]}" if len(text) > 1 else "")
        return f"{minus}{mantissa}e{point - 1:+03d}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    padded = text.ljust(point, "0")
    return minus + padded[:point] + (f".{padded[point:]}" if padded[point:] else "")


def quoted(text: str, *, ascii_only: bool = False) -> str:
    """Quote a string as ``%q`` does, or ``%+q``."""
    return '"' + "".join(_quoted_character(each, ascii_only) for each in text) + '"'


def _quoted_character(character: str, ascii_only: bool) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    if character.isprintable() and not (ascii_only and code > 0x7F):
        return character
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"


def html(text: str) -> str:
    """Escape text for HTML."""
    table = {"'": "&#39;", '"': "&#34;", "&": "&amp;", "<": "&lt;", ">": "&gt;", "\0": "\ufffd"}
    return re.sub(r"['\"&<>\0]", lambda found: table[found[0]], text)


def javascript(text: str) -> str:
    """Escape text for a JavaScript string."""
    return "".join(map(_javascript_character, text))


def _javascript_character(character: str) -> str:
    if character in "\\'\"":
        return "\\" + character
    if character in "<>&=" or ord(character) < 0x20:
        return f"\\u{ord(character):04X}"
    if ord(character) < 0x80 or character.isprintable():
        return character
    return f"\\u{ord(character):04X}"
