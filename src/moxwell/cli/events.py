"""``moxwell events``: prints events as ``kubectl events`` does, of everything or of one object."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from moxwell.api.kinds import Resource
from moxwell.cli import connect, kinds, watching
from moxwell.cli.connect import DEFAULT_NAME, Format, Name
from moxwell.cli.output import Output, show, show_value
from moxwell.clock import SystemClock
from moxwell.kube.client import Kube

Json = dict[str, Any]
EVENTS = Resource("", "v1", "events", "Event")
COLUMNS = ("last seen", "type", "reason", "object", "message")


def events(
    kind: Annotated[str, typer.Argument(help="Kind, or KIND/NAME. Default: everything.")] = "",
    called: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the object.")] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace. Default: all.")
    ] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Print new events too.")] = False,
    name: Name = DEFAULT_NAME,
    output: Format = Output.TABLE,
) -> None:
    """Print events, the oldest first."""
    kind, called = kind.split("/", 1) if "/" in kind else (kind, called)

    async def run() -> None:
        async with connect.kube(name) as kube:
            resource = kinds.by_name(await kube.discover(), kind) if kind else None
            wanted = (resource.kind if resource else "", called)
            page = await kube.list(EVENTS, namespace)
            _print(ordered(page.items, *wanted), output)
            if watch:
                await _follow(kube, namespace, page.metadata.resource_version, wanted)

    asyncio.run(run())


def _print(found: Sequence[Json], output: Output) -> None:
    if output is not Output.TABLE:
        show_value(list(found), output)
    elif found:
        now = SystemClock().now()
        show([row(event, now) for event in found], COLUMNS, output)
    else:
        typer.echo("no events found", err=True)


async def _follow(kube: Kube, namespace: str, version: str, wanted: tuple[str, str]) -> None:
    async for change in watching.changes(kube, EVENTS, namespace, version):
        if change.type != "DELETED" and ordered([change.object], *wanted):
            cells = row(change.object, SystemClock().now())
            typer.echo("  ".join(str(cells[column]) for column in COLUMNS))


def ordered(found: Iterable[Json], kind: str = "", name: str = "") -> list[Json]:
    """The events of a kind, or of an object, by the time when they were last seen."""
    chosen = [
        event
        for event in found
        if (not kind or event["involvedObject"].get("kind") == kind)
        and (not name or event["involvedObject"].get("name") == name)
    ]
    return sorted(chosen, key=last_seen)


def last_seen(event: Json) -> str:
    """When an event was last seen, as the API writes it; either API of events."""
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
        or ""
    )


def row(event: Json, now: datetime) -> Json:
    """An event as a row of the table."""
    about = event["involvedObject"]
    count = (event.get("series") or {}).get("count") or event.get("count") or 1
    return {
        "last seen": f"{age(last_seen(event), now)}{f' (x{count})' if count > 1 else ''}",
        "type": event.get("type", "Normal"),
        "reason": event.get("reason", ""),
        "object": f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        "message": str(event.get("message", "")).strip().replace("\n", " "),
    }


def age(text: str, now: datetime) -> str:
    """The time since then as kubectl prints it: ``45s``, ``3m``, ``2h``, ``5d``."""
    try:
        then = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return "<unknown>"
    seconds = max(0, int((now - then.astimezone(UTC)).total_seconds()))
    for size, unit, most in ((1, "s", 120), (60, "m", 7200), (3600, "h", 172_800)):
        if seconds < most:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86_400}d"
