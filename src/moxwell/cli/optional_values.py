"""
Options with an optional value: ``--control-plane-binaries`` and ``--control-plane-binaries=DIR``.

Typer has only switches and options with a value. An option without a value gets its default here
before Typer parses it; a value follows a ``=``, so that the next argument is never taken for it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperCommand

WITHOUT_VALUE: Mapping[str, str] = {"--control-plane-binaries": "installed"}


def add_values(args: Sequence[str]) -> list[str]:
    """The same arguments, with a value for each option that has none."""
    return [f"{arg}={WITHOUT_VALUE[arg]}" if arg in WITHOUT_VALUE else arg for arg in args]


class OptionalValueCommand(TyperCommand):
    """A command with such options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, add_values(args))
