"""The verbs of Go's fmt for strings, numbers and booleans."""

import unicodedata
from dataclasses import dataclass, replace
from typing import Any

from moxwell.bootstrap.go_templates.printing import quoted, show_float

_BASES = {"d": "d", "v": "d", "b": "b", "o": "o", "O": "o", "x": "x", "X": "X"}
_PREFIXES = {"b": "0b", "x": "0x", "X": "0X"}
_HIGHEST = 0x10FFFF


@dataclass(frozen=True, slots=True)
class VerbFlags:
    """Flags, width and precision of a verb; ``syntax`` is ``%#v`` and ``names`` is ``%+v``."""

    minus: bool = False
    plus: bool = False
    sharp: bool = False
    space: bool = False
    zero: bool = False
    width: int | None = None
    precision: int | None = None
    syntax: bool = False
    names: bool = False


def padded(text: str, flags: VerbFlags) -> str:
    """Pad to the width; zeros stand on the left only."""
    width = flags.width or 0
    if flags.minus:
        return text.ljust(width)
    return text.rjust(width, "0" if flags.zero else " ")


def basic(verb: str, value: Any, flags: VerbFlags) -> str | None:
    """Format a string, number or boolean; None if its type has no such verb."""
    if isinstance(value, str):
        return _string(verb, value, flags)
    if isinstance(value, bool):
        return padded("true" if value else "false", flags) if verb in "tv" else None
    if isinstance(value, int):
        return _integer(verb, int(value), flags)
    return _float(verb, value, flags) if isinstance(value, float) else None


def _string(verb: str, value: str, flags: VerbFlags) -> str | None:
    if verb == "q" or (verb == "v" and flags.syntax):
        text = _cut(value, flags)
        if flags.sharp and verb == "q" and "`" not in text and text.isprintable():
            return padded(f"`{text}`", flags)
        return padded(quoted(text, ascii_only=flags.plus), flags)
    if verb in "sv":
        return padded(_cut(value, flags), flags)
    return _hexadecimal(value.encode(), flags, upper=verb == "X") if verb in "xX" else None


def _cut(text: str, flags: VerbFlags) -> str:
    return text if flags.precision is None else text[: flags.precision]


def _hexadecimal(data: bytes, flags: VerbFlags, *, upper: bool) -> str:
    data = data if flags.precision is None else data[: flags.precision]
    prefix = "0x" if flags.sharp and data else ""
    text = f" {prefix}".join(f"{b:02x}" for b in data) if flags.space else data.hex()
    text = prefix + text
    return padded(text.upper() if upper else text, flags)


def _integer(verb: str, value: int, flags: VerbFlags) -> str | None:
    if verb == "c":
        return padded(_character(value), flags)
    if verb == "q":
        text = quoted(_character(value), ascii_only=flags.plus)[1:-1]
        text = text.replace('\\"', '"').replace("'", r"\'")
        return padded(f"'{text}'", flags)
    if verb == "U":
        return padded(_code_point(value, flags), replace(flags, zero=False))
    if verb not in _BASES:
        return None
    return _digits(verb, value, flags)


def _digits(verb: str, value: int, flags: VerbFlags) -> str:
    signed = "-" if value < 0 else "+" if flags.plus else " " if flags.space else ""
    least = flags.precision or 0
    if flags.precision == 0 and value == 0:
        return padded("", replace(flags, zero=False))
    if flags.precision is None and flags.zero and not flags.minus and flags.width is not None:
        least = flags.width - len(signed)  # zeros stand after the sign
    digits = format(abs(value), _BASES[verb]).rjust(least, "0")
    prefix = _PREFIXES.get(verb, "") if flags.sharp else ""
    if verb == "O":
        prefix = "0o"
    elif verb == "o" and flags.sharp and not digits.startswith("0"):
        prefix = "0"
    return padded(signed + prefix + digits, replace(flags, zero=False))


def _character(value: int) -> str:
    surrogate = 0xD800 <= value < 0xE000
    return chr(value) if 0 <= value <= _HIGHEST and not surrogate else "\ufffd"


def _code_point(value: int, flags: VerbFlags) -> str:
    number = value & 0xFFFFFFFFFFFFFFFF
    text = f"U+{number:0{max(flags.precision or 0, 4)}X}"
    shown = 0 <= value <= _HIGHEST and unicodedata.category(chr(value))[0] in "LMNPS "
    return f"{text} '{chr(value)}'" if flags.sharp and (shown or value == ord(" ")) else text


def _float(verb: str, value: float, flags: VerbFlags) -> str | None:
    text = _unsigned(verb, abs(value), flags)
    if text is None:
        return None
    negative = value < 0 or str(value).startswith("-")
    signed = "-" if negative else "+" if flags.plus else " " if flags.space else ""
    if flags.zero and not flags.minus and flags.width is not None and text[:1].isdigit():
        return signed + text.rjust(flags.width - len(signed), "0")
    return padded(signed + text, replace(flags, zero=False))


def _hexadecimal_float(value: float, *, upper: bool) -> str:
    mantissa, _, exponent = value.hex().partition("p")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    text = f"{mantissa}p{int(exponent):+03d}" if value else "0x0p+00"
    return text.upper() if upper else text


def _unsigned(verb: str, value: float, flags: VerbFlags) -> str | None:
    if value != value or value == float("inf"):
        return "NaN" if value != value else "Inf"
    if verb in "eEfF":
        digits = 6 if flags.precision is None else flags.precision
        return format(value, f"{'#' if flags.sharp else ''}.{digits}{verb.replace('F', 'f')}")
    if verb in "xX" and flags.precision is None and not flags.sharp:
        return _hexadecimal_float(value, upper=verb == "X")
    if verb not in "vgG":
        return None
    if flags.precision is not None and verb != "v":
        return format(value, f".{flags.precision}{'G' if verb == 'G' else 'g'}")
    text = show_float(value)
    return text.upper() if verb == "G" else text
