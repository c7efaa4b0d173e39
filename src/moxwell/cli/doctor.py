"""
``moxwell doctor``: checks the instance, its regions and its objects; changes nothing.

Exits with 1 if a check failed that needs an action, else with 0.
"""

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import typer

from moxwell.api.capi.core import Machine
from moxwell.api.cozystack import Kubernetes
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.machine_reasons import MachineErrorReason, ProxmoxMachineReason
from moxwell.cli import connect
from moxwell.cli.connect import DEFAULT_NAME, Format, Name
from moxwell.cli.explain import ask
from moxwell.cli.output import Output, count, show, show_value
from moxwell.errors import MoxwellError

if TYPE_CHECKING:
    from moxwell.embedded.apiserver.storage.status import DatabaseStatus
    from moxwell.embedded.controlplanes.addresses import ControlPlaneAddresses

Level = Literal["ok", "remark", "wrong"]
MIN_FREE_BYTES = 500 << 20
SHOWN = 10


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """The result of one check."""

    level: Level
    what: str
    do: str = ""

    def row(self) -> dict[str, Any]:
        return {"": {"ok": "✓", "remark": "·", "wrong": "✗"}[self.level], "what": self.what,
                "what to do": self.do}  # fmt: skip


def doctor(name: Name = DEFAULT_NAME, output: Format = Output.TABLE) -> None:
    """Check the instance and print what to do about problems."""
    findings = asyncio.run(_all(name))
    if output is Output.TABLE:
        show([f.row() for f in findings], ("", "what", "what to do"), output)
    else:
        rows = [{"level": f.level, "what": f.what, "do": f.do} for f in findings]
        show_value(rows, output)
    if any(f.level == "wrong" for f in findings):
        raise typer.Exit(1)


async def _all(name: str) -> list[DoctorFinding]:
    found = [_daemon(name), _disk(name)]
    if found[0].level == "wrong":
        return found
    found += _answers(name, "health")
    found += _control_plane_address(name)
    found += _answers(name, "reachability")
    found += await _databases(name)
    try:
        async with connect.kube(name) as kube:
            found += [f async for f in _objects(kube)]
    except MoxwellError as error:
        found.append(
            DoctorFinding("wrong", f"the API does not answer: {error}", "see the daemon's log")
        )
    return found


def _daemon(name: str) -> DoctorFinding:
    info = connect.state(name).info()
    if info is None:
        return DoctorFinding(
            "wrong", f"instance {name} is not running", "start it with `moxwell up`"
        )
    return DoctorFinding("ok", f"instance {name} has run since {info.started}, {info.mode}")


def _disk(name: str) -> DoctorFinding:
    folder = connect.state(name).folder
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        return DoctorFinding(
            "wrong", f"only {free >> 20} MiB are free in {folder}", "free space there"
        )
    return DoctorFinding("ok", f"{free >> 30} GiB are free for the state")


def _answers(name: str, action: str) -> list[DoctorFinding]:
    """
    The daemon's checks: ``health`` of each region, or whether guests reach their control planes.
    """
    try:
        rows = ask(name, action)["rows"]
    except MoxwellError as error:
        return [DoctorFinding("wrong", f"the daemon does not answer: {error}", "see its log")]
    return [DoctorFinding(r["level"], r["what"], r["do"]) for r in rows]


def _control_plane_address(name: str) -> list[DoctorFinding]:
    """Whether the nodes of a region can reach control planes of this machine."""
    from pathlib import Path

    from moxwell import config_file
    from moxwell.embedded.controlplanes import addresses

    info = connect.state(name).info()
    if info is None or not info.config:
        return []
    configured = addresses.parse(config_file.read_text(Path(info.config)))
    urls = [url for region in info.regions.values() for url in region]
    return check_control_plane_address(configured, urls)


def check_control_plane_address(
    configured: "ControlPlaneAddresses", urls: Sequence[str]
) -> list[DoctorFinding]:
    """A remark if guests of another machine should connect to loopback."""
    if configured.ranges:
        return [DoctorFinding("ok", "each control plane has an address of its own")]
    if not configured.is_local():
        return [DoctorFinding("ok", f"control planes listen on {configured.address}")]
    remote = [
        url for url in urls if urlsplit(url).hostname not in ("127.0.0.1", "::1", "localhost")
    ]
    if not remote:
        return []
    text = f"control planes listen on {configured.address}: no guest of {remote[0]} can join"
    do = "set control_planes.address in the configuration to an address of this machine"
    return [DoctorFinding("remark", text, do)]


async def _databases(name: str) -> list[DoctorFinding]:
    """Alarms, damage and backups of every database."""
    from moxwell.cli import databases

    found: list[DoctorFinding] = []
    for database, status in await databases.find_states(connect.state(name)):
        if isinstance(status, MoxwellError):
            text = f"the API of {database.name} does not answer: {status}"
            found.append(DoctorFinding("wrong", text, "see the daemon's log"))
        else:
            found += check_database(database.name, status)
    return found


def check_database(name: str, status: "DatabaseStatus") -> list[DoctorFinding]:
    """What is wrong with a database; one finding if nothing is."""
    found = []
    used = f"{status.used_bytes >> 20} of {status.quota_bytes >> 20} MiB"
    if status.alarms:
        text = f"the database of {name} is over its quota ({used}) and refuses writes"
        found.append(DoctorFinding("wrong", text, "delete objects"))
    elif status.used_bytes > status.quota_bytes * 0.8:
        text = f"the database of {name} is nearly full ({used})"
        found.append(DoctorFinding("remark", text, "delete objects"))
    for unreadable in status.unreadable[:SHOWN]:
        do = "`moxwell down`, then `moxwell repair`, or restore a backup"
        found.append(DoctorFinding("wrong", f"damaged in {name}: {unreadable}", do))
    for lost in status.lost[:SHOWN]:
        do = "create it again or delete its dependents, then `moxwell repair --accept-losses`"
        found.append(DoctorFinding("remark", f"lost from {name}: {lost}", do))
    if status.backup_error:
        text = f"the last backup of {name} failed: {status.backup_error}"
        found.append(DoctorFinding("wrong", text, "correct it; the backup is retried each minute"))
    last = status.last_backup[:16].replace("T", " ") or "none yet"
    return found or [
        DoctorFinding("ok", f"the database of {name} uses {used}, last backup: {last}")
    ]


async def _objects(kube: Any) -> AsyncIterator[DoctorFinding]:
    apps = (await kube.list(Kubernetes)).items
    for app in apps:
        ready = next((c for c in app.status.conditions if c.type == "Ready"), None)
        if ready is None or ready.status != "True":
            why = ready.message or ready.reason if ready else "it has not been reconciled yet"
            do = f"`moxwell explain cluster {app.name} -n {app.namespace}`"
            yield DoctorFinding("remark", f"cluster {app.name} is not ready: {why}", do)
        else:
            yield DoctorFinding("ok", f"cluster {app.name} is ready")
    for finding in check_machines((await kube.list(ProxmoxMachine)).items):
        yield finding
    for machine in (await kube.list(Machine)).items:
        if machine.deleting:
            yield DoctorFinding(
                "remark", f"machine {machine.name} is being deleted", "wait, or explain it"
            )


def check_machines(guests: Sequence[ProxmoxMachine]) -> Iterator[DoctorFinding]:
    """What is wrong with machines; those of a region that does not answer are one finding."""
    lost: Counter[str] = Counter()
    for guest in guests:
        ready = next((c for c in guest.status.conditions if c.type == "Ready"), None)
        if ready is None or ready.status == "True":
            continue
        if ready.reason == ProxmoxMachineReason.REGION_UNREACHABLE:
            lost[guest.spec.region or ""] += 1
            continue
        do = f"`moxwell explain machine {guest.name} -n {guest.namespace}`"
        level: Level = "wrong" if ready.reason in _NEEDS_ACTION else "remark"
        yield DoctorFinding(level, f"machine {guest.name}: {ready.reason} {ready.message}", do)
    for region, number in sorted(lost.items()):
        text = f"nothing is known of {count(number, 'machine')} until region {region} answers"
        yield DoctorFinding("remark", text, "wait; their controllers continue then")


_NEEDS_ACTION = frozenset(
    {
        ProxmoxMachineReason.VANISHED,
        MachineErrorReason.DENIED,
        MachineErrorReason.PERMISSION_DENIED,
        MachineErrorReason.TEMPLATE_AMBIGUOUS,
        MachineErrorReason.TEMPLATE_NOT_FOUND,
    }
)
