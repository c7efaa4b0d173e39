"""
Regular expressions of definitions and rules, in the dialect Kubernetes has: RE2.

Text in, a pattern out that takes linear time whatever it is asked: nobody can stall the API with
``(a+)+``. What RE2 does not know is refused in the words of Go's own library.
"""

from collections.abc import Iterator
from functools import lru_cache

import re2

from moxwell.errors import Invalid

_GO = {
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "invalid named capture group": "invalid named capture",
}


class InvalidPattern(Invalid):
    """Not a pattern of this dialect."""

    reason = "InvalidPattern"


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_compiled",)

    def __init__(self, text: str) -> None:
        options = re2.Options()
        options.log_errors = False
        try:
            self._compiled = re2.compile(text, options)
        except re2.error as error:
            raise InvalidPattern(f"error parsing regexp: {_go_message(error)}") from error

    def matches(self, text: str) -> bool:
        """Whether it is found anywhere in the text."""
        return self._compiled.search(text) is not None

    def find(self, text: str) -> str:
        """The first place where it is found; empty if there is none."""
        found = self._compiled.search(text)
        return str(found[0]) if found else ""

    def find_all(self, text: str) -> Iterator[str]:
        """Every place, from left to right."""
        return (str(found[0]) for found in self._compiled.finditer(text))


@lru_cache(maxsize=512)
def compile_pattern(text: str) -> Pattern:
    """The pattern of a text, kept: rules ask for the same one again and again."""
    return Pattern(text)


def _go_message(error: Exception) -> str:
    """``b'invalid perl operator: (?='`` as Go would say it."""
    text = error.args[0] if error.args else b""
    changes = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    what, _, where = changes.partition(": ")
    what = _GO.get(what, what)
    return f"{what}: `{where}`" if where else what
