"""
``moxwell doctor``: what is wrong, and what to do about it.

Each check is a function to one finding. Nothing is changed. Exit 0: all is well or only remarks; 1:
something needs a person.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

import typer

from moxwell.api.capi.core import Machine
from moxwell.api.cozystack import Kubernetes
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.cli import connect
from moxwell.cli.connect import DEFAULT_NAME, Format, Name
from moxwell.cli.explain import ask
from moxwell.cli.output import Output, show, show_value
from moxwell.errors import MoxwellError

Level = Literal["ok", "remark", "wrong"]
LEAST_FREE_BYTES = 500 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    what: str
    do: str = ""

    def row(self) -> dict[str, Any]:
        return {"": {"ok": "✓", "remark": "·", "wrong": "✗"}[self.level], "what": self.what,
                "what to do": self.do}  # fmt: skip


def doctor(name: Name = DEFAULT_NAME, output: Format = Output.TABLE) -> None:
    """Look for what is wrong, and say what to do about it."""
    findings = asyncio.run(_all(name))
    if output is Output.TABLE:
        show([f.row() for f in findings], ("", "what", "what to do"), output)
    else:
        rows = [{"level": f.level, "what": f.what, "do": f.do} for f in findings]
        show_value(rows, output)
    if any(f.level == "wrong" for f in findings):
        raise typer.Exit(1)


async def _all(name: str) -> list[Finding]:
    found = [_daemon(name), _disk(name)]
    if found[0].level == "wrong":
        return found
    found += _regions(name)
    try:
        async with connect.kube(name) as kube:
            found += [f async for f in _objects(kube)]
    except MoxwellError as error:
        found.append(Finding("wrong", f"the API does not answer: {error}", "see the daemon's log"))
    return found


def _daemon(name: str) -> Finding:
    home = connect.home(name)
    facts = home.facts()
    if facts is None:
        return Finding("wrong", f"instance {name} is not running", "start it with `moxwell up`")
    return Finding("ok", f"instance {name} runs since {facts.started}, {facts.mode}")


def _disk(name: str) -> Finding:
    folder = connect.home(name).folder
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE_BYTES:
        return Finding("wrong", f"only {free >> 20} MiB are free in {folder}", "make room there")
    return Finding("ok", f"{free >> 30} GiB are free for the state")


def _regions(name: str) -> list[Finding]:
    """What the daemon knows of each region: reachability, privileges, clock, templates."""
    try:
        rows = ask(name, "health")["rows"]
    except MoxwellError as error:
        return [Finding("wrong", f"the daemon does not answer: {error}", "see its log")]
    return [Finding(r["level"], r["what"], r["do"]) for r in rows]


async def _objects(kube: Any) -> AsyncIterator[Finding]:
    apps = (await kube.list(Kubernetes)).items
    for app in apps:
        ready = next((c for c in app.status.conditions if c.type == "Ready"), None)
        if ready is None or ready.status != "True":
            why = ready.message or ready.reason if ready else "nobody has looked at it yet"
            do = f"moxwell explain cluster {app.name} --namespace {app.namespace}"
            yield Finding("remark", f"cluster {app.name} is not ready: {why}", do)
        else:
            yield Finding("ok", f"cluster {app.name} is ready")
    for guest in (await kube.list(ProxmoxMachine)).items:
        said = next((c for c in guest.status.conditions if c.type == "Ready"), None)
        if said is not None and said.status != "True":
            do = f"moxwell explain machine {guest.name} --namespace {guest.namespace}"
            level: Level = "wrong" if said.reason in _PERSON else "remark"
            yield Finding(level, f"machine {guest.name}: {said.reason} {said.message}", do)
    for machine in (await kube.list(Machine)).items:
        if machine.deleting:
            yield Finding("remark", f"machine {machine.name} is leaving", "wait, or explain it")


_PERSON = frozenset({"Vanished", "TemplateNotFound", "TemplateAmbiguous", "Denied", "Forbidden"})
