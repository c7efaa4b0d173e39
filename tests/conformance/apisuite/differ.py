"""
Compares the observations of two servers.

Differences are flat, each with its path, and checked against :mod:`apisuite.allowed`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from apisuite.paths import ABSENT


@dataclass(frozen=True, slots=True)
class Difference:
    """One differing value and its path."""

    place: str
    genuine: Any
    embedded: Any

    def __str__(self) -> str:
        return f"{self.place}\n    genuine:  {self.genuine!r}\n    embedded: {self.embedded!r}"


@dataclass(frozen=True, slots=True)
class Allowed:
    """An accepted difference with its reason; patterns as in a shell."""

    case: str
    place: str
    reason: str

    def covers(self, case: str, place: str) -> bool:
        return fnmatchcase(case, self.case) and fnmatchcase(place, self.place)


def _outcome(observed: Any) -> str:
    body = observed.get("body")
    message = body.get("message") or body.get("kind") if isinstance(body, dict) else body
    return f"{observed['status']} {message}"


def _status_differs(genuine: Any, embedded: Any) -> bool:
    both = isinstance(genuine, dict) and isinstance(embedded, dict)
    return (
        both
        and isinstance(genuine.get("status"), int)
        and (genuine["status"] != embedded.get("status"))
    )


def by_step(genuine: list[Any], embedded: list[Any]) -> Iterator[Difference]:
    """Compare step by step; a different status is one difference, whatever the bodies."""
    for i, (left, right) in enumerate(zip(genuine, embedded, strict=True)):
        if _status_differs(left, right):
            yield Difference(f"/{i}/status", _outcome(left), _outcome(right))
        else:
            yield from differences(left, right, f"/{i}")


def differences(genuine: Any, embedded: Any, place: str = "") -> Iterator[Difference]:
    """Yield every differing leaf."""
    if isinstance(genuine, dict) and isinstance(embedded, dict):
        for key in sorted(genuine.keys() | embedded.keys()):
            left, right = genuine.get(key, ABSENT), embedded.get(key, ABSENT)
            yield from differences(left, right, f"{place}/{key}")
    elif isinstance(genuine, list) and isinstance(embedded, list) and len(genuine) == len(embedded):
        for i, (left, right) in enumerate(zip(genuine, embedded, strict=True)):
            yield from differences(left, right, f"{place}/{i}")
    elif genuine != embedded or isinstance(genuine, bool) != isinstance(embedded, bool):
        yield Difference(place, genuine, embedded)


def unexplained(
    case: str, genuine: list[Any], embedded: list[Any], allowed: tuple[Allowed, ...]
) -> list[Difference]:
    """Return the differences that no entry accepts."""
    return [
        found
        for found in by_step(genuine, embedded)
        if not any(entry.covers(case, found.place) for entry in allowed)
    ]
