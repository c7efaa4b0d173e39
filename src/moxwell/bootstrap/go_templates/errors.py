"""Errors of templates, with the line and column at which they occur."""

from moxwell.errors import Invalid


class TemplateFailed(Invalid):
    """The template does not parse or cannot be executed."""

    reason = "InvalidTemplate"

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        self.line, self.column = line, column
        super().__init__(f"line {line}, column {column}: {message}" if line else message)


class FunctionFailed(Exception):
    """A function refuses its arguments; the executor adds the position."""


def locate(text: str, offset: int) -> tuple[int, int]:
    """Return line and column of an offset, both counted from 1."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1
