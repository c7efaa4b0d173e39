"""``moxwell down``: stops the daemon of an instance, and deletes its state on request."""

import asyncio
import os
import signal
from typing import Annotated

import typer

from moxwell.app.state_dir import StateDir, is_alive
from moxwell.cli import connect
from moxwell.cli.connect import DEFAULT_NAME, Name
from moxwell.clock import SystemClock
from moxwell.errors import Invalid, MoxwellError, Unreachable

STOP_SECONDS = 120
POLLS_PER_SECOND = 10


def down(
    name: Name = DEFAULT_NAME,
    purge: Annotated[
        bool, typer.Option("--purge", help="Also delete the state of the instance.")
    ] = False,
) -> None:
    """Stop Moxwell. Its state is kept, so that `moxwell up` continues with it."""
    state = connect.state(name)
    info = state.info()
    pid = info.pid if info is not None else state.holder()  # it starts, or starts again
    if pid:
        if purge and info is not None and info.mode != "lab":
            _refuse_purge(name)
        os.kill(pid, signal.SIGTERM)
        asyncio.run(_wait_stopped(state, pid))
        typer.echo(f"Moxwell {name} has stopped.")
    else:
        typer.echo(f"Moxwell {name} is not running.")
    _terminate_leftovers(state)
    if purge:
        state.purge()
        _forget_demo_context(name)
        typer.echo("Its state is deleted.")


def _forget_demo_context(name: str) -> None:
    from moxwell.cli import demo, kubeconfig_file

    path = kubeconfig_file.default_path(os.environ)
    context = kubeconfig_file.context_name(name, demo.NAME, demo.NAMESPACE)
    try:
        kubeconfig_file.remove(path, context)
    except (MoxwellError, OSError) as error:
        typer.echo(f"{path} still has the context {context}: {error}", err=True)


def _terminate_leftovers(state: StateDir) -> None:
    """Terminate the control plane programs of a daemon that was killed."""
    if state.control_plane_binaries.exists() and not state.is_locked():
        from moxwell.embedded.controlplanes.supervision import process

        root = state.control_plane_binaries
        if count := asyncio.run(process.terminate_all(root, SystemClock())):
            typer.echo(f"Terminated {count} programs that it had left running.")


def _refuse_purge(name: str) -> None:
    """Refuse while clusters exist: only the state knows which guests in Proxmox belong to them."""
    from moxwell.api.cozystack import Kubernetes

    async def count() -> int:
        async with connect.kube(name) as kube:
            return len((await kube.list(Kubernetes)).items)

    if clusters := asyncio.run(count()):
        raise Invalid(
            f"{clusters} clusters still have guests in your Proxmox: delete them first with "
            "`moxwell cluster delete NAME`, then purge"
        )


async def _wait_stopped(state: StateDir, pid: int) -> None:
    clock = SystemClock()
    for _ in range(STOP_SECONDS * POLLS_PER_SECOND):
        if not state.is_locked() and not is_alive(pid):
            return
        await clock.sleep(1 / POLLS_PER_SECOND)
    raise Unreachable(f"Moxwell did not stop within {STOP_SECONDS} s; its log is {state.log}")
