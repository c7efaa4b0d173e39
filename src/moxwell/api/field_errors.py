"""
Errors of single fields: the path, what is wrong, and the value that was probably meant. Pure.

A name is refused only if it is known not to exist. What cannot be known now (a region does not
answer, the credentials may not list it) is ``None`` and refuses nothing.
"""

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from moxwell.errors import Invalid

MAX_LISTED = 12  # known names in one message


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one field."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidFields(Invalid):
    """Fields that cannot work; one sentence for each."""

    reason = "Invalid"

    def __init__(self, errors: Iterable[FieldError]) -> None:
        self.errors = tuple(dict.fromkeys(errors))
        super().__init__("; ".join(map(str, self.errors)))


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The known name that was probably meant; empty if none is near."""
    by_lower = {each.lower(): each for each in sorted(known, reverse=True)}
    found = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else ""


def hint(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`` (did you mean NAME?)``; empty if no known name is near."""
    found = nearest(name, known, cutoff)
    return f" (did you mean {found}?)" if found else ""


def listing(known: Iterable[str]) -> str:
    """Known names as text, at most ``MAX_LISTED`` of them."""
    names = sorted(known)
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return (", ".join(names[:MAX_LISTED]) or "none") + more


def unknown_name(
    path: str, noun: str, name: str, known: Collection[str] | None
) -> FieldError | None:
    """The error of a name that does not exist; None if it exists or cannot be known now."""
    if not name or known is None or name in known:
        return None
    return FieldError(
        path, f"{noun} {name!r} does not exist{hint(name, known)}; known: {listing(known)}"
    )
