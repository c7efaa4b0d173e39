"""
Kubernetes quantities (``1500m``, ``2Gi``, ``1e3``): parsing, exact arithmetic, canonical text.

The only implementation: API types, the embedded API server, quota and CEL use it. A quantity is a
whole number of nano units, so sums are exact. As in apimachinery, a finer value is rounded away
from zero, a value beyond 2^63-1 is capped, and the suffix format (binary, decimal, exponent) is
kept: ``1.5Gi`` is written as ``1536Mi``, not in bytes.
"""

import re
from dataclasses import dataclass
from decimal import ROUND_UP, Context, Decimal
from enum import Enum
from functools import total_ordering

from moxwell.errors import Invalid

NANO = 10**9
LIMIT = (2**63 - 1) * NANO
GO_ERROR = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_EXACT = Context(prec=200)
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(.*)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([+-]?\d{1,3})", re.ASCII)
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_FACTORS = {s: Decimal(10) ** e for e, s in _DECIMAL.items()} | {
    s: Decimal(1024**i) for i, s in enumerate(_BINARY) if s
}


class QuantityFormat(Enum):
    """The suffixes that a quantity is written with; the values are apimachinery's."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


class InvalidQuantity(Invalid):
    """The text is not a quantity."""

    reason = "InvalidQuantity"


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """An exact quantity; equality ignores the format."""

    nano: int
    format: QuantityFormat = QuantityFormat.DECIMAL

    @classmethod
    def parse(cls, text: str | int | float) -> "Quantity":
        """Parse the text or number in a manifest."""
        match = _NUMBER.fullmatch(str(text))
        factor, format = _suffix(match[2]) if match else (None, QuantityFormat.DECIMAL)
        if match is None or factor is None:
            raise InvalidQuantity(f"{text!r} is not a quantity: write it like 500m, 2, 1.5 or 4Gi")
        exact = _EXACT.multiply(_EXACT.multiply(Decimal(match[1]), factor), Decimal(NANO))
        nano = int(exact.to_integral_value(rounding=ROUND_UP))
        return cls(max(-LIMIT, min(LIMIT, nano)), format)

    @classmethod
    def of(cls, number: int) -> "Quantity":
        """Make the quantity of a whole number."""
        return cls(number * NANO)

    @property
    def is_integer(self) -> bool:
        """Whether the quantity is a whole number."""
        return self.nano % NANO == 0

    @property
    def value(self) -> int:
        """The number of whole units, rounded away from zero."""
        return _round_away(self.nano, NANO)

    @property
    def milli(self) -> int:
        """The number of thousandths, rounded away from zero."""
        return _round_away(self.nano, NANO // 1000)

    def __str__(self) -> str:
        if (
            self.format is QuantityFormat.BINARY
            and abs(self.nano) >= 1024 * NANO
            and not self.nano % NANO
        ):
            return _binary(self.nano // NANO)
        return _decimal(self.nano, self.format is QuantityFormat.EXPONENT)

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nano + other.nano, (self if self.nano else other).format)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nano - other.nano, (self if self.nano else other).format)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nano == other.nano

    def __lt__(self, other: "Quantity") -> bool:
        return self.nano < other.nano

    def __hash__(self) -> int:
        return hash(self.nano)


def _suffix(text: str) -> tuple[Decimal | None, QuantityFormat]:
    if exponent := _EXPONENT.fullmatch(text):
        return _EXACT.power(Decimal(10), int(exponent[1])), QuantityFormat.EXPONENT
    format = QuantityFormat.BINARY if text.endswith("i") else QuantityFormat.DECIMAL
    return _FACTORS.get(text), format


def _round_away(number: int, unit: int) -> int:
    return -(-number // unit) if number > 0 else number // unit


def _binary(number: int) -> str:
    power = 0
    while number % 1024 == 0 and power < len(_BINARY) - 1:
        number, power = number // 1024, power + 1
    return f"{number}{_BINARY[power]}"


def _decimal(nano: int, exponent_form: bool) -> str:
    if nano == 0:
        return "0"
    power = -9
    while nano % 1000 == 0 and (power < 18 or exponent_form):
        nano, power = nano // 1000, power + 3
    if exponent_form:
        return f"{nano}e{power}" if power else str(nano)
    return f"{nano}{_DECIMAL[power]}"


def canonical(text: str) -> str:
    """Rewrite a quantity in canonical form; small whole numbers already are."""
    if text.isascii() and text.isdecimal() and len(text) < 4 and not text.startswith("0"):
        return text
    return str(Quantity.parse(text))


def cores(text: str | int | float) -> float:
    """Convert a CPU quantity to a number of cores."""
    return Quantity.parse(text).nano / NANO


def mebibytes(text: str | int | float) -> int:
    """Convert a memory quantity to MiB, rounded up."""
    return -(-Quantity.parse(text).value // 2**20)
