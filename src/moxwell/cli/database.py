"""``moxwell backup``, ``restore`` and ``repair``: the databases of an instance."""

import asyncio
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from moxwell.app.state_dir import StateDir
from moxwell.cli import connect, databases
from moxwell.cli.connect import DEFAULT_NAME, Format, Name
from moxwell.cli.databases import MANAGEMENT, InstanceDatabase
from moxwell.cli.output import Output, show
from moxwell.clock import SystemClock
from moxwell.embedded.apiserver.revision_log import RevisionLog
from moxwell.embedded.apiserver.storage import backup as backups
from moxwell.embedded.apiserver.storage import repair as repairs
from moxwell.embedded.apiserver.storage import restore as restores
from moxwell.embedded.apiserver.storage.backup import BackupFile
from moxwell.embedded.apiserver.storage.repair import RepairReport
from moxwell.embedded.apiserver.storage.settings import StorageSettings

Database = Annotated[
    str,
    typer.Option("--database", help="`management`, or a tenant cluster: name or namespace/name."),
]
AllDatabases = Annotated[
    str,
    typer.Option(
        "--database",
        help="`management`, or a tenant cluster: name or namespace/name. Default: all.",
    ),
]


def _chosen(state: StateDir, name: str) -> tuple[InstanceDatabase, ...]:
    return (databases.get_database(state, name),) if name else databases.list_databases(state)


# Backup


def backup(
    name: Name = DEFAULT_NAME,
    database: AllDatabases = "",
    to: Annotated[
        Path | None, typer.Option("--to", help="Also copy the new backups to this directory.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the backups, make none.")] = False,
    output: Format = Output.TABLE,
) -> None:
    """Back up the databases of the instance, or list the backups."""
    state = connect.state(name)
    chosen = _chosen(state, database)
    if listing:
        rows = [_row(d, made) for d in chosen for made in backups.list_backups(d.backups)]
    else:
        rows = [_row(d, made) for d, made in _back_up(state, chosen, to)]
    show(rows, ("database", "time", "revision", "file"), output)


def _row(database: InstanceDatabase, made: BackupFile) -> dict[str, Any]:
    return {
        "database": database.name,
        "time": made.made.strftime("%Y-%m-%d %H:%M:%S UTC"),
        "revision": made.revision,
        "file": str(made.path),
    }


def _back_up(
    state: StateDir, chosen: tuple[InstanceDatabase, ...], to: Path | None
) -> list[tuple[InstanceDatabase, BackupFile]]:
    if state.is_locked():
        reachable = [d for d in chosen if d.kubeconfig is not None]
        for database in reachable:
            asyncio.run(databases.send(database, "POST", "/backup"))
        made = [(d, backups.list_backups(d.backups)[-1]) for d in reachable]
    else:
        with databases.stopped(state):
            made = [(d, _back_up_file(d)) for d in chosen]
    for database, found in made if to is not None else ():
        assert to is not None
        _copy(database, found, to)
    return made


def _back_up_file(database: InstanceDatabase) -> BackupFile:
    now = SystemClock().now()
    log = RevisionLog(database.path, StorageSettings())
    try:
        log.load(backups.stamp_of(now))
        log.backup(backups.partial_path(database.backups), lambda: None)
    finally:
        log.close()
    return backups.complete(backups.partial_path(database.backups), now)


def _copy(database: InstanceDatabase, made: BackupFile, to: Path) -> None:
    """Copy a backup under a temporary name, then rename it."""
    to.mkdir(parents=True, exist_ok=True, mode=0o700)
    target = to / f"{database.name.replace('/', '_')}-{made.path.name}"
    partial = target.with_name(f".{target.name}")
    shutil.copyfile(made.path, partial)
    partial.chmod(0o600)
    backups.verify(partial)
    partial.replace(target)


# Restore


def restore(
    file: Annotated[Path, typer.Argument(help="The backup file.")],
    name: Name = DEFAULT_NAME,
    database: Database = MANAGEMENT,
) -> None:
    """Replace a database of a stopped instance by a backup. The replaced database is kept."""
    state = connect.state(name)
    with databases.stopped(state):
        path = (
            state.database
            if database == MANAGEMENT
            else databases.get_database(state, database).path
        )
        report = restores.restore(file, path, backups.stamp_of(SystemClock().now()))
    typer.echo(
        f"Restored {report.objects} objects of revision {report.backup_revision}; "
        f"the database continues at revision {report.revision}."
    )
    if report.kept is not None:
        typer.echo(f"The replaced database is {report.kept}.")
    typer.echo("Start with `moxwell up`, then compare with Proxmox: `moxwell verify`.")


# Repair


def repair(
    name: Name = DEFAULT_NAME,
    database: AllDatabases = "",
    use_older: Annotated[
        bool,
        typer.Option(
            "--use-older", help="Use older content of objects whose newest content is lost."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report; change nothing.")
    ] = False,
    accept_losses: Annotated[
        bool,
        typer.Option(
            "--accept-losses",
            help="Treat objects that a repair lost as deleted: their dependents are deleted.",
        ),
    ] = False,
) -> None:
    """Rebuild damaged databases from their readable rows. The damaged files are kept."""
    state = connect.state(name)
    chosen = _chosen(state, database)
    if accept_losses:
        _accept_losses(state, chosen)
        return
    with databases.stopped(state):
        stamp = backups.stamp_of(SystemClock().now())
        for each in chosen:
            done = repairs.repair(each.path, stamp, use_older=use_older, dry_run=dry_run)
            for line in report_lines(each.name, done, dry_run=dry_run):
                typer.echo(line)


def _accept_losses(state: StateDir, chosen: tuple[InstanceDatabase, ...]) -> None:
    if state.is_locked():
        for database in chosen:
            if database.kubeconfig is not None:
                asyncio.run(databases.send(database, "POST", "/accept-losses"))
                typer.echo(f"{database.name}: losses are accepted")
        return
    with databases.stopped(state):
        for database in chosen:
            log = RevisionLog(database.path, StorageSettings())
            try:
                log.load(backups.stamp_of(SystemClock().now()))
                log.accept_losses()
            finally:
                log.close()
            typer.echo(f"{database.name}: losses are accepted")


def report_lines(name: str, report: RepairReport, *, dry_run: bool) -> list[str]:
    """What a repair found, as text."""
    if not report.damaged:
        return [f"{name}: not damaged, {report.objects} objects"]
    lines = [f"{name}: damaged; {report.objects} objects are readable"]
    lines += [f"  problem: {problem}" for problem in report.problems]
    lines += [f"  lost: {lost}" for lost in report.lost]
    lines += [f"  older content (revision {at}): {lost}" for lost, at in report.older]
    if not report.proven:
        lines.append(
            f"  {report.gaps} changes are lost without a name: objects may be missing or have an "
            "older content; compare with a backup"
        )
    if dry_run:
        return lines
    lines.append(f"  repaired; the damaged database is {report.kept}")
    if report.lost:
        lines.append(
            "  objects that a lost object owns are kept until `moxwell repair --accept-losses`"
        )
    return lines
