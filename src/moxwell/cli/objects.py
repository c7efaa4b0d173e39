"""``moxwell apply``, ``get`` and ``delete``: for those without kubectl."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from moxwell.api.kinds import Resource
from moxwell.cli import connect, manifests
from moxwell.cli.connect import DEFAULT_NAME, Format, Name
from moxwell.cli.output import Output, show, show_value
from moxwell.errors import Missing
from moxwell.kube.client import Kube
from moxwell.kube.discovery import Served

Json = dict[str, Any]
MANAGER = "moxwell-cli"
Files = Annotated[list[Path], typer.Option("--file", "-f", help="A manifest; - reads stdin.")]
Space = Annotated[str, typer.Option("--namespace", help="Namespace; default where it has one.")]


def apply(file: Files, name: Name = DEFAULT_NAME, namespace: Space = "default") -> None:
    """Make or change the objects of a file."""
    documents = manifests.read(file)

    async def run() -> None:
        async with connect.kube(name) as kube:
            served = await kube.discover()
            for doc in documents:
                resource = _of_object(served, doc)
                if resource.namespaced:
                    doc["metadata"].setdefault("namespace", namespace)
                await kube.apply(doc, resource, manager=MANAGER, force=True)
                typer.echo(f"{resource.kind} {doc['metadata']['name']} applied")

    asyncio.run(run())


def get(
    kind: Annotated[str, typer.Argument(help="A kind, in any of its names.")],
    called: Annotated[str, typer.Argument(metavar="[NAME]", help="One object.")] = "",
    name: Name = DEFAULT_NAME,
    namespace: Annotated[str, typer.Option("--namespace", help="Only there.")] = "",
    output: Format = Output.TABLE,
) -> None:
    """Print objects."""

    async def run() -> None:
        async with connect.kube(name) as kube:
            resource = _by_name(await kube.discover(), kind)
            if output is Output.TABLE:
                await _table(kube, resource, namespace, called)
                return
            if called:
                space = namespace or ("default" if resource.namespaced else "")
                show_value(await kube.get(resource, called, space), output)
                return
            show_value(list((await kube.list(resource, namespace)).items), output)

    asyncio.run(run())


async def _table(kube: Kube, resource: Resource, namespace: str, called: str) -> None:
    table = await kube.table(resource, namespace)
    columns = [c.name for c in table.columns if c.priority == 0]
    shown = [i for i, c in enumerate(table.columns) if c.priority == 0]
    rows: list[Json] = []
    for row in table.rows:
        meta = row.object.metadata
        if called and meta.name != called:
            continue
        cells = dict(zip(columns, (row.cells[i] for i in shown), strict=True))
        rows.append(({"namespace": meta.namespace} if resource.namespaced else {}) | cells)
    if called and not rows:
        raise Missing(f"there is no {resource.kind} {called}")
    show(rows, (["namespace"] if resource.namespaced else []) + columns, Output.TABLE)


def delete(
    kind: Annotated[str, typer.Argument(help="A kind, in any of its names.")] = "",
    called: Annotated[str, typer.Argument(metavar="[NAME]", help="One object.")] = "",
    file: Annotated[
        list[Path] | None, typer.Option("--file", "-f", help="The objects of a manifest.")
    ] = None,
    name: Name = DEFAULT_NAME,
    namespace: Space = "default",
) -> None:
    """Delete objects; what they made goes with them."""
    if not file and not (kind and called):
        raise typer.BadParameter("say a kind and a name, or -f FILE")

    async def run() -> None:
        async with connect.kube(name) as kube:
            served = await kube.discover()
            rows = [(_by_name(served, kind), called, namespace)] if kind else []
            for doc in manifests.read(file) if file else []:
                meta = doc["metadata"]
                rows.append(
                    (_of_object(served, doc), meta["name"], meta.get("namespace", namespace))
                )
            for resource, one, space in reversed(rows):
                await kube.delete(resource, one, space if resource.namespaced else "")
                typer.echo(f"{resource.kind} {one} is being deleted")

    asyncio.run(run())


def _of_object(served: tuple[Served, ...], doc: Json) -> Resource:
    for found in served:
        if (found.resource.api_version, found.resource.kind) == (doc["apiVersion"], doc["kind"]):
            return found.resource
    raise Missing(f"{doc['apiVersion']} {doc['kind']} is not served here")


def _by_name(served: tuple[Served, ...], word: str) -> Resource:
    """As kubectl reads it: plural, singular, kind or short name, with or without a group."""
    wanted, _, group = word.lower().partition(".")
    for found in served:
        resource = found.resource
        names = {resource.plural, found.singular, resource.kind.lower(), *found.short}
        if found.preferred and wanted in names and group in ("", resource.group):
            return resource
    raise Missing(f"there is no kind {word!r} here: `moxwell get customresourcedefinitions`")
