"""``printf``, ``print`` and ``println`` as Go's fmt formats them."""

import re
from typing import Any

from moxwell.bootstrap.go_templates.errors import FunctionFailed
from moxwell.bootstrap.go_templates.printing import quoted, show, show_float
from moxwell.bootstrap.go_templates.values import Absent, go_type, is_nil

_VERB = re.compile(
    r"%(?P<flags>[-+# 0]*)(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d*))?(?P<verb>.)?", re.S
)
MAX_WIDTH = 10_000


def sprint(values: tuple[Any, ...]) -> str:
    """Join values; a space stands between two that are both no strings."""
    out: list[str] = []
    for index, value in enumerate(values):
        if index and not isinstance(value, str) and not isinstance(values[index - 1], str):
            out.append(" ")
        out.append(show(value))
    return "".join(out)


def sprintln(values: tuple[Any, ...]) -> str:
    return " ".join(map(show, values)) + "\n"


def sprintf(template: str, values: tuple[Any, ...]) -> str:
    """Format values by a format string."""
    rest = list(values)
    out: list[str] = []
    position = 0
    for found in _VERB.finditer(template):
        out += [template[position : found.start()], _formatted(found, rest)]
        position = found.end()
    out.append(template[position:])
    if rest:
        extra = ", ".join(_typed(value) for value in rest)
        out.append(f"%!(EXTRA {extra})")
    return "".join(out)


def _typed(value: Any) -> str:
    return "<nil>" if is_nil(value) else f"{go_type(value)}={show(value)}"


def _formatted(found: re.Match[str], rest: list[Any]) -> str:
    flags = set(found["flags"])
    width, flags = _star(found["width"], rest, flags)
    precision, _ = _star(found["precision"], rest, set())
    verb = found["verb"]
    if verb is None:
        return "%!(NOVERB)"
    if verb == "%":
        return "%"
    if not rest:
        return f"%!{verb}(MISSING)"
    text, signed = _converted(verb, rest.pop(0), flags, precision)
    return _padded(text, width or 0, flags, zero="0" in flags and signed)


def _star(text: str | None, rest: list[Any], flags: set[str]) -> tuple[int | None, set[str]]:
    """Read a width or precision, which ``*`` takes from the arguments."""
    if text is None:
        return None, flags
    value = rest.pop(0) if text == "*" and rest else int(text or 0) if text != "*" else 0
    if not isinstance(value, int):
        return None, flags
    if abs(value) > MAX_WIDTH:
        raise FunctionFailed(f"width or precision above {MAX_WIDTH}")
    return abs(value), flags | {"-"} if value < 0 else flags


def _padded(text: str, width: int, flags: set[str], *, zero: bool) -> str:
    if "-" in flags:
        return text.ljust(width)
    if not zero:
        return text.rjust(width)
    sign = text[:1] if text[:1] in ("+", "-", " ") else ""
    return sign + text[len(sign) :].rjust(width - len(sign), "0")


def _converted(verb: str, value: Any, flags: set[str], precision: int | None) -> tuple[str, bool]:
    """Return the text and whether zeros may pad it."""
    if verb == "T":
        return go_type(value), False
    if is_nil(value):
        return ("<nil>" if verb == "v" else f"%!{verb}(<nil>)"), False
    if verb == "v":
        return _value(value, flags)
    if isinstance(value, list | tuple) and verb in "sqdxXot":
        inner = (_converted(verb, item, flags, precision)[0] for item in value)
        return f"[{' '.join(inner)}]", False
    text = _by_type(verb, value, flags, precision)
    if text is None:
        return f"%!{verb}({_typed(value)})", False
    return text, isinstance(value, int | float) and not isinstance(value, bool)


def _value(value: Any, flags: set[str]) -> tuple[str, bool]:
    if "#" in flags:
        return (quoted(value) if isinstance(value, str) else show(value, names=True)), False
    number = isinstance(value, int | float) and not isinstance(value, bool)
    text = show(value, names="+" in flags)
    return ("+" + text if number and "+" in flags and value >= 0 else text), number


def _by_type(verb: str, value: Any, flags: set[str], precision: int | None) -> str | None:
    if isinstance(value, bool):
        return show(value) if verb == "t" else None
    if isinstance(value, str):
        return _string(verb, value, precision)
    if isinstance(value, int):
        return _integer(verb, int(value), flags)
    if isinstance(value, float):
        return _float(verb, value, flags, precision)
    return show(value) if verb == "s" and not isinstance(value, Absent) else None


def _string(verb: str, value: str, precision: int | None) -> str | None:
    text = value if precision is None else value[:precision]
    if verb == "s":
        return text
    if verb == "q":
        return quoted(text)
    if verb in "xX":
        digits = text.encode().hex()
        return digits if verb == "x" else digits.upper()
    return None


def _integer(verb: str, value: int, flags: set[str]) -> str | None:
    if verb in ("c", "q", "U"):
        return _character(verb, value)
    if verb not in "dboxXO":
        return None
    digits = format(abs(value), {"O": "o"}.get(verb, verb))
    prefix = {"x": "0x", "X": "0X", "o": "0", "b": "0b"}.get(verb, "") if "#" in flags else ""
    prefix = "0o" if verb == "O" else prefix
    sign = "-" if value < 0 else "+" if "+" in flags else " " if " " in flags else ""
    return sign + prefix + digits


def _character(verb: str, value: int) -> str:
    if verb == "U":
        return f"U+{value:04X}"
    text = chr(value) if 0 <= value <= 0x10FFFF else "\ufffd"
    return text if verb == "c" else "'" + quoted(text)[1:-1].replace('\\"', '"') + "'"


def _float(verb: str, value: float, flags: set[str], precision: int | None) -> str | None:
    sign = "+" if "+" in flags and value >= 0 else " " if " " in flags and value >= 0 else ""
    if verb in "eEfF":
        digits = 6 if precision is None else precision
        return sign + format(value, f".{digits}{verb.lower() if verb == 'F' else verb}")
    if verb in "gG":
        return sign + (show_float(value) if precision is None else format(value, f".{precision}g"))
    return None
