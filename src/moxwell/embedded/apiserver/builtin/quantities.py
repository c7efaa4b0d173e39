"""
Quantities in the form Go writes them: ``1000m`` is stored as ``1``, ``1024Mi`` as ``1Gi``.

Text or number in, canonical text out; a text that is no quantity raises :class:`NotAQuantity`.
The surprising part: finer than nano is rounded up, away from zero.
"""

import re
from fractions import Fraction

from moxwell.errors import Invalid

_FORM = re.compile(r"^([+-]?)(\d+\.?\d*|\.\d+)((?:[KMGTPE]i)|[numkMGTPE]|[eE][+-]?\d+)?$")
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_NAMES = {power: name for name, power in _DECIMAL.items()}
_BINARY_NAMES = {power: name for name, power in _BINARY.items()}
FORM_ERROR = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


class NotAQuantity(Invalid):
    """The text is no quantity."""

    def __init__(self) -> None:
        super().__init__(FORM_ERROR)


def parse(text: str) -> tuple[Fraction, str]:
    """Value and suffix."""
    found = _FORM.match(text)
    if found is None:
        raise NotAQuantity
    sign, digits, suffix = found.group(1), found.group(2), found.group(3) or ""
    number = Fraction(digits.rstrip(".") if digits.endswith(".") else digits)
    value = number * _scale(suffix)
    return (-value if sign == "-" else value), suffix


def _scale(suffix: str) -> Fraction:
    if suffix in _BINARY:
        return Fraction(1024 ** _BINARY[suffix])
    if suffix in _DECIMAL:
        return Fraction(10) ** _DECIMAL[suffix]
    return Fraction(10) ** int(suffix[1:])


def canonical(text: str) -> str:
    """As Go would write it back."""
    if text.isdecimal() and len(text) < 4 and not text.startswith("0"):
        return text
    return write(*parse(text))


def write(value: Fraction, suffix: str) -> str:
    """A value in the form of a suffix, as Go would write it."""
    if suffix in _BINARY and abs(value) >= 1024 and value.denominator == 1:
        return _binary(int(value))
    power_names = suffix[:1] in ("e", "E") and suffix not in _DECIMAL
    return _decimal(value, exponent=power_names)


def _binary(number: int) -> str:
    power = 0
    while number % 1024 == 0 and power < 6:
        number, power = number // 1024, power + 1
    return f"{number}{_BINARY_NAMES.get(power, '')}"


def _decimal(value: Fraction, *, exponent: bool) -> str:
    scaled = abs(value) * 10**9
    number = -(-scaled.numerator // scaled.denominator)  # rounded up
    if number == 0:
        return "0"
    power = -9
    while number % 1000 == 0 and power < 18:
        number, power = number // 1000, power + 3
    suffix = (f"e{power}" if power else "") if exponent else _DECIMAL_NAMES[power]
    return f"{'-' if value < 0 else ''}{number}{suffix}"
