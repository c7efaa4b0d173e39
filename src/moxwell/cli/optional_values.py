"""
Options whose value may be left out: ``--genuine-planes`` and ``--genuine-planes=DIR``.

Our parser knows either switches or options with a value. A bare one is given its word here before
the parser sees it; a value is written with ``=``, so that the next argument is never taken for it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperCommand

BARE: Mapping[str, str] = {"--genuine-planes": "installed"}


def filled(args: Sequence[str]) -> list[str]:
    """The same arguments, with a value for each option that came without."""
    return [f"{arg}={BARE[arg]}" if arg in BARE else arg for arg in args]


class OptionalValues(TyperCommand):
    """A command with such options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, filled(args))
