"""``moxwell daemon``: runs the daemon of an instance, or its supervisor, in the foreground."""

import asyncio
import errno
import os
from typing import Annotated

import typer

from moxwell.app import launch_options
from moxwell.app.launch_options import LaunchOptions
from moxwell.app.state_dir import StateDir
from moxwell.cli import connect
from moxwell.cli.connect import DEFAULT_NAME, Name
from moxwell.errors import MoxwellError


def daemon(
    name: Name = DEFAULT_NAME,
    supervisor: Annotated[
        int, typer.Option("--supervisor", hidden=True, help="PID of the parent that restarts this.")
    ] = 0,
) -> None:
    """Run the daemon in the foreground, with the options of the last `moxwell up`."""
    state = connect.state(name)
    try:
        if not supervisor:
            from moxwell.app import supervise

            raise typer.Exit(asyncio.run(supervise.supervise(name, os.environ)))
        from moxwell.app import daemon as app

        options = launch_options.stored(state) or LaunchOptions(name=name)
        asyncio.run(app.run(options, os.environ, supervisor=supervisor))
    except MoxwellError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.exit_code) from error
    except OSError as error:
        typer.echo(f"error: {_os_error(error, state)}", err=True)
        raise typer.Exit(1) from error


def _os_error(error: OSError, state: StateDir) -> str:
    where = f" ({error.filename})" if error.filename else ""
    do = "see `moxwell doctor`"
    if error.errno == errno.ENOSPC:
        do = f"free space on the file system of {state.folder} and start again"
    return f"the system refused: {error.strerror or error}{where}: {do}"
