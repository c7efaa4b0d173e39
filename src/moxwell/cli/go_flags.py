"""
Accepts flags in the syntax of Go programs, so that manifests of other controllers work unchanged.

``--leader-elect=false``, ``-v=4``, ``--v 4`` and durations like ``5m0s`` are common there; Typer
accepts neither a value for a switch nor a ``=`` after a single dash.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperCommand

from moxwell.errors import Invalid

_SECONDS: Mapping[str, float] = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0,
}  # fmt: skip
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_SWITCHES = ("leader-elect", "use-service-account-credentials", "allocate-node-cidrs",
             "configure-cloud-routes", "profiling")  # fmt: skip
_TRUE, _FALSE = {"true", "1", "t"}, {"false", "0", "f"}


def duration(text: str) -> float:
    """Seconds of a duration like ``5m0s``; a bare number is seconds."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or "".join(n + unit for n, unit in parts) != text:
        raise Invalid(f"{text!r} is not a duration like 30s, 5m or 1h30m")
    return sum(float(n) * _SECONDS[unit] for n, unit in parts)


def normalize(args: Sequence[str]) -> list[str]:
    """The same arguments in the syntax of Typer."""
    return [_normalize(arg) for arg in args]


def _normalize(arg: str) -> str:
    if arg == "--v" or arg.startswith(("-v=", "--v=")):
        return "--verbosity" + arg.removeprefix("--v").removeprefix("-v")
    name, equals, value = arg.removeprefix("--").partition("=")
    if not arg.startswith("--") or not equals or name not in _SWITCHES:
        return arg
    if value.lower() in _TRUE:
        return f"--{name}"
    if value.lower() in _FALSE:
        return f"--no-{name}"
    raise Invalid(f"--{name} must be true or false, not {value!r}")


class GoStyleCommand(TyperCommand):
    """A command that accepts both syntaxes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, normalize(args))
        except Invalid as error:
            raise typer.BadParameter(str(error)) from error
