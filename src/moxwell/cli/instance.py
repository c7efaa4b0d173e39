"""``moxwell up``: starts the daemon of an instance and waits until it is ready."""

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from moxwell.app import launch_options
from moxwell.app.launch_options import BINARIES_KEYWORDS, LaunchOptions
from moxwell.app.state_dir import StateDir
from moxwell.atomic_file import write_private
from moxwell.cli import connect, program, waiting
from moxwell.cli.connect import DEFAULT_NAME, Name
from moxwell.cli.dataclass_options import command
from moxwell.cli.output import Progress, count
from moxwell.clock import SystemClock
from moxwell.errors import MoxwellError, Retryable, Terminal, Unreachable

START_SECONDS = 180
MIN_FREE_BYTES = 1 << 20  # with less the daemon cannot even log
POLLS_PER_SECOND = 10


class CannotStartNow(Retryable):
    """The daemon could not start, but a later start may succeed."""

    reason = "DidNotStart"


class DidNotStart(Terminal):
    """The daemon exited while it was starting."""

    reason = "DidNotStart"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpFlags:
    """The flags of ``moxwell up``."""

    name: Name = DEFAULT_NAME
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="File with your Proxmox clusters. Default: the simulated ones of the lab.",
        ),
    ] = None
    world: Annotated[
        Path | None,
        typer.Option("--world", help="File with the simulated clusters of the lab."),
    ] = None
    control_plane_binaries: Annotated[
        str,
        typer.Option(
            "--control-plane-binaries",
            metavar="[=DIR]",
            help="Run the control planes of new tenants from installed kube-apiserver, "
            "kube-controller-manager, kube-scheduler and etcd binaries (on PATH, or in DIR); "
            "=no disables it.",
        ),
    ] = ""
    autoscaler_mode: Annotated[
        str,
        typer.Option(
            "--autoscaler-mode",
            help="How the autoscalers of tenants decide: optimise (cheaper, the default) or exact "
            "(as Karpenter).",
        ),
    ] = ""
    demo: Annotated[
        bool, typer.Option("--demo/--no-demo", help="Create the demo cluster in the lab.")
    ] = True
    kubeconfig: Annotated[
        bool,
        typer.Option(
            "--kubeconfig/--no-kubeconfig", help="Add the demo cluster to ~/.kube/config."
        ),
    ] = True
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Run in the foreground and log to the terminal.")
    ] = False
    wait: Annotated[
        int, typer.Option("--timeout", "--wait", help="Seconds to wait for the demo cluster.")
    ] = 600

    def options(self) -> LaunchOptions:
        """The flags as the daemon reads them, with absolute paths."""
        binaries = self.control_plane_binaries
        return LaunchOptions(
            name=self.name,
            config=str(self.config.resolve()) if self.config else "",
            world=str(self.world.resolve()) if self.world else "",
            control_plane_binaries=(
                binaries if binaries in BINARIES_KEYWORDS else str(Path(binaries).resolve())
            ),
            autoscaler_mode=self.autoscaler_mode,
        )


@command(UpFlags)
def up(flags: UpFlags) -> None:
    """Start Moxwell: the lab, or with --config your own Proxmox. Does nothing if it runs."""
    options = flags.options()
    launch_options.check(options)
    if flags.foreground:
        from moxwell.app import daemon as app

        asyncio.run(app.run(options, os.environ))
        return
    progress = Progress()
    try:
        demo = _start_and_wait(options, flags, progress)
    finally:
        progress.stop()
    context = _add_demo_context(flags.name) if demo and flags.kubeconfig else ""
    _print_next_steps(flags.name, demo, context)
    _check_regions(flags.name)


def _add_demo_context(name: str) -> str:
    """Add the demo cluster to the user's kubeconfig; empty if that is not possible."""
    from moxwell.cli import cluster_kubeconfig, demo, exec_credential, kubeconfig_file

    path = kubeconfig_file.default_path(os.environ)
    context = kubeconfig_file.context_name(name, demo.NAME, demo.NAMESPACE)
    command = cluster_kubeconfig.command(demo.NAME, demo.NAMESPACE, name)
    try:
        text = exec_credential.with_exec(waiting.run(demo.kubeconfig(name)), command, os.environ)
        kubeconfig_file.add(path, text, context)
    except (MoxwellError, OSError) as error:
        typer.echo(f"{path} is unchanged: {error}", err=True)
        return ""
    return context


def _check_regions(name: str) -> None:
    """Print what regions lack; exit with 1 if no cluster can be made in one of them."""
    from moxwell.cli import preflight

    if connect.info(name).mode == "lab":
        return
    if not preflight.show_regions(name, Progress()):
        typer.echo("Not ready for a cluster yet: correct what failed, then run this again.")
        raise typer.Exit(1)


def _start_and_wait(options: LaunchOptions, flags: UpFlags, progress: Progress) -> bool:
    """Start the daemon and wait for the demo cluster; returns whether there is one."""
    started = _start(options, progress)
    info = connect.info(flags.name)
    progress.done(
        f"Moxwell is {'up' if started else 'running already'}: {info.mode}, "
        f"{count(len(info.regions), 'region')}"
    )
    if not started and (message := launch_options.restart_message(options, info)):
        progress.warn(message)
    demo = flags.demo and info.mode == "lab"
    if demo:
        from moxwell.cli import demo as demo_cluster

        waiting.run(demo_cluster.ensure(flags.name, progress, seconds=flags.wait))
    return demo


def _start(options: LaunchOptions, progress: Progress) -> bool:
    """Start the daemon unless it runs; wait until it answers."""
    state = connect.state(options.name)
    if state.info() is not None:
        return False
    progress.say("starting")
    try:
        process = _spawn(state, options)
    except OSError as error:
        raise _write_error(error, state) from error
    asyncio.run(_wait_started(state, process, progress))
    return True


def _spawn(state: StateDir, options: LaunchOptions) -> "subprocess.Popen[bytes]":
    state.create()
    state.check()
    complete = launch_options.with_defaults(options, launch_options.stored(state))
    write_private(state.launch_options, msgspec.json.encode(complete))
    state.log.touch(mode=0o600)
    with state.log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "moxwell", "daemon", "--name", options.name],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
            umask=0o077,  # its files are readable by their owner only
        )


def _write_error(error: OSError, state: StateDir) -> CannotStartNow | DidNotStart:
    """The error of a state directory that cannot be written, with what to do."""
    what = error.strerror or str(error)
    full = error.errno == errno.ENOSPC
    do = "free space there" if full else "make it writable for you"
    return (CannotStartNow if full else DidNotStart)(
        f"cannot write to {error.filename or state.folder}: {what}; {do}, "
        "or choose another directory with XDG_STATE_HOME"
    )


async def _wait_started(
    state: StateDir, process: "subprocess.Popen[bytes]", progress: Progress
) -> None:
    from moxwell.kube import transport  # noqa: F401  loaded while the daemon loads its own

    clock = SystemClock()
    for poll in range(START_SECONDS * POLLS_PER_SECOND):
        if state.info() is not None:
            return
        if process.poll() is not None and not state.is_locked():  # locked: another `up` was first
            raise _exit_error(process.returncode, state.log)
        seconds = poll // POLLS_PER_SECOND // 5 * 5
        progress.say(f"starting, {seconds} s" if seconds else "starting")
        await clock.sleep(1 / POLLS_PER_SECOND)
    raise Unreachable(f"Moxwell did not answer within {START_SECONDS} s; its log is {state.log}")


def _exit_error(code: int, log: Path) -> CannotStartNow | DidNotStart:
    """Why a daemon exited: the last error line of its log."""
    lines = log.read_text(errors="replace").splitlines()[-40:]
    errors = [line for line in lines if line.startswith("error: ")]
    if not errors and shutil.disk_usage(log.parent).free < MIN_FREE_BYTES:
        where = f"free space on the file system of {log.parent}"
        return CannotStartNow(f"Moxwell did not start: the disk is full; {where}")
    last = lines[-1] if lines else "the log is empty"
    text = errors[-1].removeprefix("error: ") if errors else last
    later = code == Retryable.exit_code
    return (CannotStartNow if later else DidNotStart)(f"Moxwell did not start: {text} (log: {log})")


def _print_next_steps(name: str, demo: bool, context: str) -> None:
    from rich.console import Console

    info, state, call = connect.info(name), connect.state(name), program.current().command
    out = Console(soft_wrap=True, highlight=False)
    out.print(f"\n  Dashboard   {dashboard_link(name)}   (works once)")
    out.print(f"  Kubernetes  export KUBECONFIG={state.kubeconfig}")
    if context:
        out.print(f"  Tenant      context {context} of your kubeconfig")
        out.print(f"\n  Next: [bold]kubectl --context {context} get nodes -o wide[/bold]")
    elif demo:
        out.print(f"  Tenant      {call('cluster kubeconfig demo')} > demo.kubeconfig")
        out.print("\n  Next: [bold]kubectl --kubeconfig demo.kubeconfig get nodes -o wide[/bold]")
    if demo:
        out.print(
            f"        [bold]{call('cluster scale demo md0 5')}[/bold]   and watch the dashboard"
        )
    else:
        out.print(f"\n  Next: [bold]{call('cluster create demo --nodes 3')}[/bold]")
    out.print(f"        {call('status')}\n        {call('doctor')}\n        {call('down')}\n")
    if call("") != "moxwell":
        out.print("  `make install` says how to call it `moxwell`.\n")
    if info.mode == "lab":
        out.print(
            f"  This is a lab: the Proxmox clusters are simulated. Your own: {call('init')}\n"
        )


def dashboard_link(name: str) -> str:
    """A dashboard address that works once."""
    import urllib.request

    info = connect.info(name)
    key = connect.state(name).dashboard_key.read_text()
    request = urllib.request.Request(
        f"{info.dashboard}/api/link", method="POST", headers={"Authorization": f"Bearer {key}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            path = msgspec.json.decode(response.read())["path"]
    except OSError as error:
        raise Unreachable(f"the dashboard does not answer: {error}") from error
    return f"{info.dashboard}{path}"
