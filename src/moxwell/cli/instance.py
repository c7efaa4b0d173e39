"""``moxwell up``, ``down`` and ``status``: the life of an instance."""

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from moxwell.app.launch_options import WORDS, Wish, check, settled, unheard
from moxwell.app.state_dir import Home, is_alive, write_whole
from moxwell.cli import connect
from moxwell.cli.connect import DEFAULT_NAME, Format, Name
from moxwell.cli.output import Output, Progress, show, show_value
from moxwell.clock import SystemClock
from moxwell.errors import Invalid, MoxwellError, Retryable, Terminal, Unreachable

START_SECONDS = 180
STOP_SECONDS = 120
LEAST_FREE_BYTES = 1 << 20  # with less not even a log can say what is wrong
TICKS = 10  # looks per second while waiting


class NotNow(Retryable):
    """The daemon could not start, but may later."""

    reason = "DidNotStart"


class DidNotStart(Terminal):
    """The daemon ended while it was starting."""

    reason = "DidNotStart"


def up(
    name: Name = DEFAULT_NAME,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="Your own Proxmox: a file with clusters. Without: the lab."),
    ] = None,
    world: Annotated[
        Path | None, typer.Option("--world", help="Another simulated estate for the lab.")
    ] = None,
    genuine: Annotated[
        str,
        typer.Option(
            "--genuine-planes",
            metavar="[=DIR]",
            help="Tenants run on kube-apiserver, kube-controller-manager, kube-scheduler and "
            "etcd as they are installed (on PATH, or in DIR); =no: new tenants do not.",
        ),
    ] = "",
    sample: Annotated[
        bool, typer.Option("--sample/--no-sample", help="Make the sample cluster in the lab.")
    ] = True,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay, and log to the terminal.")
    ] = False,
    wait: Annotated[
        int, typer.Option("--wait", help="Seconds to wait for the sample cluster.")
    ] = 600,
) -> None:
    """Start Moxwell: the lab, or with --config your own Proxmox. Starting twice is harmless."""
    wish = Wish(
        name=name,
        config=str(config.resolve()) if config else "",
        world=str(world.resolve()) if world else "",
        genuine=genuine if genuine in WORDS else str(Path(genuine).resolve()),
    )
    check(wish)
    if foreground:
        from moxwell.app import daemon

        asyncio.run(daemon.run(wish, os.environ))
        return
    progress = Progress()
    try:
        started = _start(wish, progress)
        facts = connect.facts(name)
        progress.done(
            f"Moxwell is {'up' if started else 'running already'}: {facts.mode}, "
            f"{len(facts.regions)} regions"
        )
        if not started and (said := unheard(wish, facts)):
            progress.warn(said)
        if sample and facts.mode == "lab":
            from moxwell.cli import demo as sampling

            asyncio.run(sampling.ensure(name, progress, seconds=wait))
    finally:
        progress.stop()
    _say_what_next(name, sample and facts.mode == "lab")


def _start(wish: Wish, progress: Progress) -> bool:
    """Start the daemon unless it runs; wait until it answers."""
    home = connect.home(wish.name)
    if home.facts() is not None:
        return False
    progress.say("starting")
    try:
        process = _spawn(home, wish)
    except OSError as error:
        raise _refused(error, home) from error
    asyncio.run(_await_answer(home, process, progress))
    return True


def _before(home: Home) -> Wish | None:
    """How it was last asked to run."""
    if not home.wanted.exists():
        return None
    return msgspec.json.decode(home.wanted.read_bytes(), type=Wish)


def _spawn(home: Home, wish: Wish) -> "subprocess.Popen[bytes]":
    home.make()
    home.check()
    write_whole(home.wanted, msgspec.json.encode(settled(wish, _before(home))))
    home.log.touch(mode=0o600)
    with home.log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "moxwell", "daemon", "--name", wish.name],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
            umask=0o077,  # whatever it writes is its owner's
        )


def _refused(error: OSError, home: Home) -> DidNotStart:
    """What the system did not allow, where, and what to do about it."""
    what = error.strerror or str(error)
    do = "make room there" if error.errno == errno.ENOSPC else "make it yours and writable"
    return DidNotStart(
        f"cannot write to {error.filename or home.folder}: {what}; {do}, "
        "or choose another place with XDG_STATE_HOME"
    )


async def _await_answer(home: Home, process: "subprocess.Popen[bytes]", progress: Progress) -> None:
    from moxwell.kube import transport  # noqa: F401  loaded while the daemon loads its own

    clock = SystemClock()
    for tick in range(START_SECONDS * TICKS):
        if home.facts() is not None:
            return
        if process.poll() is not None and not home.is_held():  # held: somebody was quicker
            later = process.returncode == Retryable.exit_code
            raise (NotNow if later else DidNotStart)(_last_words(home.log))
        seconds = tick // TICKS // 5 * 5
        progress.say(f"starting, {seconds} s" if seconds else "starting")
        await clock.sleep(1 / TICKS)
    raise Unreachable(f"Moxwell did not answer within {START_SECONDS} s; its log is {home.log}")


def _last_words(log: Path) -> str:
    """The reason a daemon gave for ending: the last line it wrote as an error."""
    lines = log.read_text(errors="replace").splitlines()[-40:]
    said = [line for line in lines if line.startswith("error: ")]
    if not said and shutil.disk_usage(log.parent).free < LEAST_FREE_BYTES:
        where = f"make room on the file system of {log.parent}"
        return f"Moxwell did not start: the disk is full; {where}"
    text = said[-1].removeprefix("error: ") if said else (lines[-1] if lines else "no reason given")
    return f"Moxwell did not start: {text} (log: {log})"


def _say_what_next(name: str, sample: bool) -> None:
    from rich.console import Console

    facts, home, me = connect.facts(name), connect.home(name), _command()
    out = Console(soft_wrap=True, highlight=False)
    out.print(f"\n  Dashboard   {_link(name)}")
    out.print(f"  Kubernetes  export KUBECONFIG={home.kubeconfig}")
    if sample:
        out.print(f"  Tenant      {me} cluster kubeconfig demo > demo.kubeconfig")
        out.print("\n  Next: [bold]kubectl --kubeconfig demo.kubeconfig get nodes -o wide[/bold]")
        out.print(f"        [bold]{me} cluster scale demo md0 5[/bold]   and watch the dashboard")
    else:
        out.print(f"\n  Next: [bold]{me} cluster create demo --nodes 3[/bold]")
    out.print(f"        {me} status, {me} doctor, {me} down\n")
    if facts.mode == "lab":
        out.print(
            "  This is a lab: the Proxmox clusters are simulated. Your own: "
            f"{me} up --config proxmox.yaml\n"
        )


def _command() -> str:
    """How this very program is called here: by name where the shell would find it."""
    program = Path(sys.argv[0]).resolve()
    found = shutil.which("moxwell")
    if found and Path(found).resolve() == program:
        return "moxwell"
    here = Path.cwd()
    return str(program.relative_to(here)) if program.is_relative_to(here) else str(program)


def _link(name: str) -> str:
    """A dashboard address that works once."""
    import urllib.request

    facts, home = connect.facts(name), connect.home(name)
    key = home.bearer.read_text()
    ask = urllib.request.Request(
        f"{facts.dashboard}/api/link", method="POST", headers={"Authorization": f"Bearer {key}"}
    )
    try:
        with urllib.request.urlopen(ask, timeout=60) as answer:
            path = msgspec.json.decode(answer.read())["path"]
    except OSError as error:
        raise Unreachable(f"the dashboard does not answer: {error}") from error
    return f"{facts.dashboard}{path}"


def down(
    name: Name = DEFAULT_NAME,
    purge: Annotated[
        bool, typer.Option("--purge", help="Delete the instance's state as well.")
    ] = False,
) -> None:
    """Stop Moxwell. Its state is kept, and `moxwell up` goes on where it was."""
    home = connect.home(name)
    facts = home.facts()
    if facts is not None:
        if purge and facts.mode != "lab":
            _refuse_purge(name)
        os.kill(facts.pid, signal.SIGTERM)
        asyncio.run(_await_end(home, facts.pid))
        typer.echo(f"Moxwell {name} has stopped.")
    else:
        typer.echo(f"Moxwell {name} is not running.")
    _end_leftovers(home)
    if purge:
        home.purge()
        typer.echo("Its state is deleted.")


def _end_leftovers(home: Home) -> None:
    """Programs that a killed daemon left running."""
    if home.genuine.exists() and not home.is_held():
        from moxwell.embedded.controlplanes.binaries import process

        if ended := asyncio.run(process.end_all(home.genuine, SystemClock())):
            typer.echo(f"Ended {ended} programs that it had left running.")


def _refuse_purge(name: str) -> None:
    """State of a real estate knows which guests are ours; without it nobody does."""
    from moxwell.api.cozystack import Kubernetes

    async def count() -> int:
        async with connect.kube(name) as kube:
            return len((await kube.list(Kubernetes)).items)

    if left := asyncio.run(count()):
        raise Invalid(
            f"{left} clusters still have guests in your Proxmox: delete them first with "
            "`moxwell cluster delete NAME`, then purge"
        )


async def _await_end(home: Home, pid: int) -> None:
    clock = SystemClock()
    for _ in range(STOP_SECONDS * TICKS):
        if not home.is_held() and not is_alive(pid):
            return
        await clock.sleep(1 / TICKS)
    raise Unreachable(f"Moxwell did not stop within {STOP_SECONDS} s; its log is {home.log}")


def status(name: Name = DEFAULT_NAME, output: Format = Output.TABLE) -> None:
    """What runs, and what each cluster waits for."""
    from moxwell.cli import cluster_rows

    facts = connect.facts(name)
    rows = asyncio.run(cluster_rows.clusters(name))
    if output is not Output.TABLE:
        show_value({"instance": msgspec.to_builtins(facts), "clusters": rows}, output)
        return
    regions = ", ".join(f"{r} ({len(h)} hosts)" for r, h in sorted(facts.regions.items()))
    typer.echo(f"{facts.mode} {facts.name}, Moxwell {facts.version}, since {facts.started}")
    typer.echo(f"regions    {regions}")
    typer.echo(f"api        {facts.api}   KUBECONFIG={connect.home(name).kubeconfig}")
    typer.echo(f"dashboard  {_link(name)}   (works once)")
    typer.echo("")
    if rows:
        show(rows, ("namespace", "cluster", "version", "nodes", "regions", "state"), output)
    else:
        typer.echo("No clusters yet: moxwell cluster create demo --nodes 3")


def daemon(name: Name = DEFAULT_NAME) -> None:
    """Run in the foreground as `moxwell up` last asked; what `up` starts."""
    from moxwell.app import daemon as running

    home = connect.home(name)
    wish = Wish(name=name)
    if home.wanted.exists():
        wish = msgspec.json.decode(home.wanted.read_bytes(), type=Wish)
    try:
        asyncio.run(running.run(wish, os.environ))
    except MoxwellError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.exit_code) from error
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        what = error.strerror or str(error)
        todo = "see `moxwell doctor`"
        if error.errno == errno.ENOSPC:
            todo = f"make room on the file system of {home.folder} and start again"
        typer.echo(f"error: the system refused: {what}{where}: {todo}", err=True)
        raise typer.Exit(1) from error
