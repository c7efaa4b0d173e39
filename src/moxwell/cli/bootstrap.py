"""``moxwell bootstrap``: creates a management cluster of VMs in Proxmox, or removes it."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moxwell.cli.dataclass_options import command
from moxwell.cli.output import Progress

if TYPE_CHECKING:
    from moxwell.app.bootstrap_inputs import BootstrapInputs
    from moxwell.preflight.outcome import RegionCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapFlags:
    """The flags of ``moxwell bootstrap``."""

    config: Annotated[
        Path, typer.Option("--config", help="File with the regions and management_cluster (YAML).")
    ] = Path("moxwell.yaml")
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the regions and print what would be made.")
    ] = False
    undo: Annotated[
        bool, typer.Option("--undo", help="Remove what bootstrap has made, and nothing else.")
    ] = False
    kubeconfig: Annotated[
        Path | None,
        typer.Option("--kubeconfig", help="File for the kubeconfig; default: NAME.kubeconfig."),
    ] = None
    talosconfig: Annotated[
        Path | None,
        typer.Option(
            "--talosconfig", help="File for the talosconfig of Talos; default: NAME.talosconfig."
        ),
    ] = None
    wait: Annotated[int, typer.Option("--wait", help="Seconds to wait at most.")] = 3600
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False


@command(BootstrapFlags)
def bootstrap(flags: BootstrapFlags) -> None:
    """Make a management cluster of VMs on your Proxmox clusters. An interrupted run continues."""
    from moxwell.app import bootstrap_run
    from moxwell.app.bootstrap_inputs import read_inputs
    from moxwell.clock import SystemClock
    from moxwell.management.progress import preview
    from moxwell.runtime import log

    inputs = read_inputs(flags.config)
    log.configure(form="console", level="warning")
    if not flags.undo:
        _show_checks(asyncio.run(bootstrap_run.preflight(inputs, SystemClock())))
    if flags.dry_run:
        typer.echo("\n".join(preview(inputs.spec, inputs.stages)))
        return
    if flags.undo and not flags.yes:
        question = f"Delete management cluster {inputs.spec.name} and its machines?"
        typer.confirm(question, abort=True)
    _run(inputs, flags)


def _run(inputs: "BootstrapInputs", flags: BootstrapFlags) -> None:
    """Make or remove the cluster, and show the progress."""
    from moxwell.app import bootstrap_run
    from moxwell.app.state_dir import StateDir
    from moxwell.atomic_file import write_private
    from moxwell.clock import SystemClock

    name = inputs.spec.name
    state, progress = StateDir(f"bootstrap-{name}", os.environ), Progress()
    work = bootstrap_run.run(
        state, inputs, SystemClock(), progress.say, undo=flags.undo, seconds=flags.wait
    )
    try:
        made = asyncio.run(work)
    finally:
        progress.stop()
    if flags.undo:
        state.purge()
        progress.done(f"Management cluster {name} is removed")
        return
    file = flags.kubeconfig or Path(f"{name}.kubeconfig")
    write_private(file.absolute(), made.kubeconfig.encode())
    if made.talosconfig:
        talos = flags.talosconfig or Path(f"{name}.talosconfig")
        write_private(talos.absolute(), made.talosconfig.encode())
        progress.done(f"Talos on its machines: export TALOSCONFIG={talos}")
    progress.done(f"Management cluster {name} manages itself: export KUBECONFIG={file}")


def _show_checks(checks: "Mapping[str, Sequence[RegionCheck]]") -> None:
    """Print what a check found; raise if one failed."""
    from moxwell.app.bootstrap_run import PreflightFailed
    from moxwell.preflight.outcome import CheckLevel

    failed = False
    for zone, found in checks.items():
        for check in found:
            failed |= check.level is CheckLevel.FAIL
            advice = f" → {check.do}" if check.do else ""
            typer.echo(f"{check.level:4}  {zone}: {check.name}: {check.what}{advice}")
    if failed:
        raise PreflightFailed("a check failed; nothing was made")
