"""Commands that wait: the options ``--wait`` and ``--timeout``, and what Ctrl-C prints."""

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

import typer

from moxwell.cli import program

Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is finished.")]
Timeout = Annotated[
    int, typer.Option("--timeout", min=1, help="Seconds to wait at most. The work continues.")
]
WAIT_SECONDS = 900
INTERRUPTED = 130
T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a command that may wait; Ctrl-C ends the waiting, not the work."""
    try:
        return asyncio.run(main)
    except KeyboardInterrupt:
        said = "Stopped waiting. What was requested continues: follow it with `moxwell status`."
        typer.echo(f"\n{program.current().localize(said)}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def requested(what: str) -> None:
    """Confirm a request whose result the command does not wait for."""
    said = f"{what} is requested: follow it with `moxwell status`"
    typer.echo(program.current().localize(said))
