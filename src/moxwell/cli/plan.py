"""
``moxwell plan``: what a file would do, told before it is applied; and ``--plan`` of others.

The daemon is asked, which knows the estate. With ``--kubeconfig`` and ``--config`` the same code
runs here, against a genuine Kubernetes and Proxmox. Nothing is asked of a person, nothing changed.
"""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from moxwell.cli import connect, direct_access, manifests
from moxwell.cli.connect import DEFAULT_NAME, Format, Name
from moxwell.cli.output import Output, show, show_value
from moxwell.errors import Invalid, Unreachable

Json = dict[str, Any]
WORDS = {"make": "+ make", "change": "~ change", "delete": "- delete"}
Only = Annotated[bool, typer.Option("--plan", help="Only say what would happen.")]


def plan(
    file: Annotated[list[Path], typer.Option("--file", "-f", help="A manifest; - reads stdin.")],
    name: Name = DEFAULT_NAME,
    delete: Annotated[
        bool, typer.Option("--delete", help="What deleting the file's objects would do.")
    ] = False,
    kubeconfig: direct_access.Kubeconfig = "",
    context: direct_access.Context = "",
    config: direct_access.Config = None,
    output: Format = Output.TABLE,
) -> None:
    """Say what applying a file would do: objects, nodes that roll, hosts, addresses."""
    documents, where = manifests.read(file), direct_access.Where(kubeconfig, context, config)
    if where.direct:
        report = asyncio.run(_here(where, documents, delete=delete))
    else:
        report = ask(name, documents, delete=delete)
    show_report(report, output)


async def _here(where: direct_access.Where, documents: list[Json], *, delete: bool) -> Json:
    from moxwell.plan.offline import peek

    async with (
        direct_access.reach(where) as both,
        peek(both.handler, both.regions, both.clock) as sight,
    ):
        return await sight.plan(documents, delete=delete)


def ask(name: str, documents: list[Json], *, delete: bool = False) -> Json:
    """The report, made by the daemon, which knows the estate."""
    import urllib.error
    import urllib.request

    facts, key = connect.facts(name), connect.home(name).bearer.read_text()
    request = urllib.request.Request(
        f"{facts.dashboard}/api/do/plan{'?delete=1' if delete else ''}",
        data=msgspec.json.encode(documents),
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            report: Json = msgspec.json.decode(answer.read())
            return report
    except urllib.error.HTTPError as error:
        text = error.read().decode().strip()
        raise Unreachable(text) if error.code == 503 else Invalid(text) from error
    except OSError as error:
        raise Unreachable(f"the daemon does not answer: {error}") from error


def show_report(report: Json, output: Output) -> None:
    """A report as it was asked for."""
    if output is not Output.TABLE:
        show_value(report, output)
        return
    for part in report["parts"]:
        tell(part)


def tell(part: Json) -> None:
    """One document's report, for people."""
    what = f"{part['kind']} {part['namespace']}/{part['name']}".replace(" /", " ")
    said = {
        "make": "would be made",
        "change": "would change",
        "delete": "would be deleted",
        "none": "stays as it is",
    }
    changed = f" ({', '.join(part['fields'])})" if part["fields"] else ""
    typer.echo(f"{what} {said[part['how']]}{changed}")
    rows = [
        {"": WORDS[o["how"]], "kind": o["kind"], "name": o["name"], "what": ", ".join(o["fields"])}
        for o in part["objects"]
    ]
    if rows:
        show(rows, ("", "kind", "name", "what"), Output.TABLE)
    for group in part["groups"]:
        if group["made"] or group["removed"] or group["rolls"]:
            typer.echo(f"\n{sentence(group)}")
            _tell_machines([m for m in part["machines"] if m["group"] == group["name"]])
    for note in part["notes"]:
        typer.echo(f"note: {note}")


def sentence(group: Json) -> str:
    """What happens to the nodes of a group."""
    size = f"{group['before']} nodes"
    if group["before"] != group["after"]:
        size = f"{group['before']} -> {group['after']} nodes"
    if not group["rolls"]:
        return f"{group['name']}: {size}; {group['made']} made, {group['removed']} deleted"
    why = f" because of {', '.join(group['because'])}" if group["because"] else ""
    return f"{group['name']}: {size}; {group['removed']} are replaced one by one{why}"


def _tell_machines(machines: list[Json]) -> None:
    rows = [
        {
            "": WORDS[m["how"]],
            "machine": m["name"] or "(new)",
            "host": f"{m['region']}/{m['host']}" if m["host"] else m["why_not"] or "-",
            "address": m["addresses"],
        }
        for m in machines
    ]
    if rows:
        show(rows, ("", "machine", "host", "address"), Output.TABLE)
