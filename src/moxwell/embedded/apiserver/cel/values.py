"""CEL values without a Python type, and CEL's equality, order and arithmetic."""

import ipaddress
import operator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from moxwell.errors import Invalid


class EvaluationError(Invalid):
    """Evaluation failed; the message is CEL's."""


@dataclass(frozen=True, slots=True)
class Optional:
    """A CEL optional value."""

    there: bool
    value: Any = None


NONE = Optional(False)


@dataclass(frozen=True, slots=True)
class Url:
    text: str


Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def overload() -> EvaluationError:
    return EvaluationError("no such overload")


def type_name(value: Any) -> str:
    if value is None:
        return "null_type"
    if isinstance(value, bool):
        return "bool"
    for kind, name in _NAMES:
        if isinstance(value, kind):
            return name
    return type(value).__name__


_NAMES: tuple[tuple[type, str], ...] = (
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
    (list, "list"),
    (dict, "map"),
    (datetime, "google.protobuf.Timestamp"),
    (timedelta, "google.protobuf.Duration"),
    (Optional, "optional_type"),
)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def equal(a: Any, b: Any) -> bool:
    """Compare for equality; values of different types are unequal, except numbers."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(v, b[k]) for k, v in a.items())
    return bool(a == b)


def compare(a: Any, b: Any) -> int:
    """Compare; the result is negative, zero or positive."""
    if _number(a) and _number(b):
        return int(a > b) - int(a < b)
    if type(a) is not type(b) or isinstance(a, (list, dict, type(None))):
        raise overload()
    return int(a > b) - int(a < b)


def bounded(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise EvaluationError("integer overflow")
    return number


def add(a: Any, b: Any) -> Any:
    if isinstance(a, bool) or isinstance(b, bool):
        raise overload()
    if isinstance(a, int) and isinstance(b, int):
        return bounded(a + b)
    same = type(a) is type(b)
    timed = isinstance(a, (datetime, timedelta)) and isinstance(b, (datetime, timedelta))
    if (same and isinstance(a, (float, str, bytes, list, timedelta))) or (timed and not same):
        return a + b
    raise overload()


def subtract(a: Any, b: Any) -> Any:
    if isinstance(a, bool) or isinstance(b, bool):
        raise overload()
    if isinstance(a, int) and isinstance(b, int):
        return bounded(a - b)
    if isinstance(a, (float, datetime, timedelta)) and isinstance(b, (float, datetime, timedelta)):
        try:
            return operator.sub(a, b)
        except TypeError:
            raise overload() from None
    raise overload()


def multiply(a: Any, b: Any) -> Any:
    if type(a) is type(b) is int:
        return bounded(a * b)
    if type(a) is type(b) is float:
        return a * b
    raise overload()


def divide(a: Any, b: Any) -> Any:
    if type(a) is type(b) is int:
        if b == 0:
            raise EvaluationError("division by zero")
        found = abs(a) // abs(b)
        return found if (a < 0) == (b < 0) else -found
    if type(a) is type(b) is float:
        return a / b if b else float("inf") if a > 0 else float("-inf") if a < 0 else float("nan")
    raise overload()


def modulo(a: Any, b: Any) -> Any:
    if not type(a) is type(b) is int:
        raise overload()
    if b == 0:
        raise EvaluationError("modulus by zero")
    return a - b * divide(a, b)


def negate(a: Any) -> Any:
    if isinstance(a, bool) or not isinstance(a, (int, float, timedelta)):
        raise overload()
    return bounded(-a) if isinstance(a, int) else -a


def member(item: Any, of: Any) -> bool:
    if isinstance(of, dict):
        return item in of
    if isinstance(of, list):
        return any(equal(item, other) for other in of)
    raise overload()
