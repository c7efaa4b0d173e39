"""Reads Go's constants: strings, characters and numbers."""

import re

_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\'\"])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.?))",
    re.DOTALL,
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def unquote(text: str) -> str:
    """Read a quoted string or a character constant; ValueError if it is malformed."""
    quote, body = text[0], text[1:-1]
    if quote == "`":
        return body.replace("\r", "")
    out = bytearray()
    position = 0
    for found in _ESCAPE.finditer(body):
        out += body[position : found.start()].encode()
        out += _escaped(found, quote)
        position = found.end()
    out += body[position:].encode()
    return out.decode(errors="replace")


def _escaped(found: re.Match[str], quote: str) -> bytes:
    simple, byte, short, long, octal, other = found.groups()
    if other is not None or (simple in ("'", '"') and simple != quote):
        raise ValueError(f"invalid escape {found[0]}")
    if simple is not None:
        return _SIMPLE.get(simple, simple).encode()
    if byte or octal:
        value = int(byte, 16) if byte else int(octal, 8)
        if value > 255:
            raise ValueError(f"invalid escape {found[0]}")
        return bytes([value])
    return chr(int(short or long, 16)).encode()


def number(text: str) -> int | float:
    """Read a number; ValueError if it is malformed, too large or complex."""
    body = text.replace("_", "") if _underscores_fit(text) else "_"
    if body.endswith("i"):
        raise ValueError("complex numbers are not supported")
    sign, digits = (body[0], body[1:]) if body[0] in "+-" else ("", body)
    lower = digits.lower()
    value: int | float
    if lower.startswith("0x") and ("p" in lower or "." in lower):
        value = float.fromhex(digits)
    elif re.fullmatch(r"0[0-7]+", digits):
        value = int(digits, 8)
    elif re.search(r"[.e]", lower) and not lower.startswith("0x"):
        value = float(digits)
    else:
        value = int(digits, 0)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("integer overflow")
    return -value if sign == "-" else value


def _underscores_fit(text: str) -> bool:
    """Underscores stand only in numbers with a base prefix or between digits."""
    return "__" not in text and not text.endswith("_")
