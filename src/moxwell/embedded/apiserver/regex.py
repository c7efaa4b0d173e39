"""
RE2 regular expressions for schemas and CEL, with Go's error messages.

RE2 matches in linear time, so a pattern such as ``(a+)+`` cannot stall the API server.
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
    """The pattern is not valid RE2."""

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
        """Report whether the pattern matches anywhere in the text."""
        return self._compiled.search(text) is not None

    def find(self, text: str) -> str:
        """Return the first match, or the empty string."""
        found = self._compiled.search(text)
        return str(found[0]) if found else ""

    def find_all(self, text: str) -> Iterator[str]:
        """Return all matches."""
        return (str(found[0]) for found in self._compiled.finditer(text))


@lru_cache(maxsize=512)
def compile_pattern(text: str) -> Pattern:
    """Compile a pattern, with a cache."""
    return Pattern(text)


def _go_message(error: Exception) -> str:
    """Convert an RE2 error such as ``b'invalid perl operator: (?='`` to Go's message."""
    text = error.args[0] if error.args else b""
    changes = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    what, _, where = changes.partition(": ")
    what = _GO.get(what, what)
    return f"{what}: `{where}`" if where else what
