"""
``moxwell get``: prints objects as ``kubectl get`` does.

Prints the server's table, names, or JSON and YAML: one object as it is, several as a ``List``.
Without a namespace it reads all of them; a name must then be unique.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any

import typer

from moxwell.api.kinds import Resource
from moxwell.cli import connect, kinds, watching
from moxwell.cli.connect import DEFAULT_NAME, Name
from moxwell.cli.output import Output, show, show_value
from moxwell.errors import Invalid, Missing
from moxwell.kube.client import Kube
from moxwell.kube.codec import WatchEvent
from moxwell.kube.discovery import ServedKind

Json = dict[str, Any]


class ObjectOutput(StrEnum):
    """Output formats of objects."""

    TABLE = "table"
    WIDE = "wide"
    NAME = "name"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class ObjectQuery:
    """Objects of one kind: one by name, or all that match."""

    resource: Resource
    name: str = ""
    namespace: str = ""
    selector: str = ""


def get(
    kind: Annotated[str, typer.Argument(help="Comma-separated kinds, or KIND/NAME.")],
    called: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Names of the objects.")
    ] = None,
    name: Name = DEFAULT_NAME,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace. Default: all.")
    ] = "",
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="All namespaces, which is the default.")
    ] = False,
    selector: Annotated[
        str, typer.Option("--selector", "-l", help="Label selector, such as app=web,tier!=db.")
    ] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Print changes too.")] = False,
    output: Annotated[
        ObjectOutput, typer.Option("--output", "-o", help="Output format.")
    ] = ObjectOutput.TABLE,
) -> None:
    """Print objects."""
    if everywhere and namespace:
        raise typer.BadParameter("-A and -n exclude each other")
    if watch and "," in kind:
        raise typer.BadParameter("--watch follows one kind")

    async def run() -> None:
        async with connect.kube(name) as kube:
            served = await kube.discover()
            queries = parse_queries(served, [kind, *(called or ())], namespace, selector)
            await print_objects(kube, queries, output)
            if watch:
                await watch_objects(kube, queries[0], output)

    asyncio.run(run())


def parse_queries(
    served: Sequence[ServedKind], words: Sequence[str], namespace: str, selector: str
) -> list[ObjectQuery]:
    """Parse ``KIND[,KIND] [NAME…]`` or ``KIND/NAME…``."""
    first, names = words[0], list(words[1:])
    if any("/" in word for word in words):
        if not all("/" in word for word in words):
            raise Invalid("write every object as KIND/NAME, or one KIND and then names")
        pairs = [word.split("/", 1) for word in words]
        return [_one(kinds.by_name(served, k), n, namespace, "") for k, n in pairs]
    found = [kinds.by_name(served, word) for word in first.split(",") if word]
    if names and selector:
        raise Invalid("name objects or select them by labels, not both")
    if names:
        return [_one(resource, n, namespace, "") for resource in found for n in names]
    return [_one(resource, "", namespace, selector) for resource in found]


def _one(resource: Resource, name: str, namespace: str, selector: str) -> ObjectQuery:
    return ObjectQuery(resource, name, namespace if resource.namespaced else "", selector)


async def print_objects(kube: Kube, queries: Sequence[ObjectQuery], output: ObjectOutput) -> None:
    """Print the objects of all queries."""
    if output in (ObjectOutput.TABLE, ObjectOutput.WIDE):
        for number, query in enumerate(queries):
            if number:
                typer.echo("")
            await _table(kube, query, wide=output is ObjectOutput.WIDE)
        return
    found = [(query, obj) for query in queries for obj in await fetch(kube, query)]
    if output is ObjectOutput.NAME:
        for query, obj in found:
            typer.echo(f"{_typed(query.resource)}/{obj['metadata']['name']}")
        return
    objects = [obj for _, obj in found]
    single = len(queries) == 1 and bool(queries[0].name)
    show_value(objects[0] if single else as_list(objects), Output(output.value))


def _typed(resource: Resource) -> str:
    """As ``kubectl -o name`` writes it: ``pod``, ``machine.cluster.x-k8s.io``."""
    kind = resource.kind.lower()
    return f"{kind}.{resource.group}" if resource.group else kind


def as_list(objects: Sequence[Json]) -> Json:
    """Several objects as a ``List``."""
    head = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}}
    return {**head, "items": list(objects)}


async def fetch(kube: Kube, query: ObjectQuery) -> list[Json]:
    """The objects, each with its apiVersion and kind."""
    head = {"apiVersion": query.resource.api_version, "kind": query.resource.kind}
    if query.name and (query.namespace or not query.resource.namespaced):
        return [{**head, **await kube.get(query.resource, query.name, query.namespace)}]
    page = await kube.list(query.resource, query.namespace, labels=query.selector)
    rows = [{**head, **obj} for obj in page.items]
    if not query.name:
        return rows
    return [_only(query, [r for r in rows if r["metadata"]["name"] == query.name])]


def _only(query: ObjectQuery, rows: list[Json]) -> Json:
    if not rows:
        raise Missing(f"there is no {query.resource.kind} {query.name} in any namespace")
    if len(rows) > 1:
        spaces = ", ".join(sorted(r["metadata"]["namespace"] for r in rows))
        raise Invalid(f"{query.resource.kind} {query.name} exists in {spaces}: select one with -n")
    return rows[0]


async def watch_objects(kube: Kube, query: ObjectQuery, output: ObjectOutput) -> None:
    """Print every change of the objects until the command is interrupted."""
    page = await kube.list(query.resource, query.namespace, labels=query.selector)
    version = page.metadata.resource_version
    async for change in watching.changes(
        kube, query.resource, query.namespace, version, query.selector
    ):
        meta = change.object["metadata"]
        if query.name in ("", meta["name"]):
            await _print_change(kube, query, change, output)


async def _print_change(
    kube: Kube, query: ObjectQuery, change: WatchEvent[Json], output: ObjectOutput
) -> None:
    meta = change.object["metadata"]
    if output is ObjectOutput.NAME:
        typer.echo(f"{_typed(query.resource)}/{meta['name']}")
    elif output in (ObjectOutput.JSON, ObjectOutput.YAML):
        show_value(change.object, Output(output.value))
    elif change.type == "DELETED":
        typer.echo("  ".join(filter(None, (meta.get("namespace"), meta["name"], "deleted"))))
    else:
        one = replace(query, name=meta["name"], namespace=meta.get("namespace", ""), selector="")
        columns, rows = await _rows(kube, one, wide=output is ObjectOutput.WIDE)
        for row in rows:  # none if it was deleted since
            typer.echo("  ".join(str(row[c] or "-") for c in columns))


async def _rows(kube: Kube, query: ObjectQuery, *, wide: bool) -> tuple[list[str], list[Json]]:
    """The columns and rows of the server's table."""
    table = await kube.table(query.resource, query.namespace, labels=query.selector)
    shown = [i for i, c in enumerate(table.columns) if wide or c.priority == 0]
    columns = [table.columns[i].name for i in shown]
    rows: list[Json] = []
    for row in table.rows:
        meta = row.object.metadata
        if query.name and meta.name != query.name:
            continue
        cells = dict(zip(columns, (row.cells[i] for i in shown), strict=True))
        rows.append(({"namespace": meta.namespace} if query.resource.namespaced else {}) | cells)
    return (["namespace"] if query.resource.namespaced else []) + columns, rows


async def _table(kube: Kube, query: ObjectQuery, *, wide: bool) -> None:
    columns, rows = await _rows(kube, query, wide=wide)
    if query.name and not rows:
        where = f"namespace {query.namespace}" if query.namespace else "any namespace"
        raise Missing(f"there is no {query.resource.kind} {query.name} in {where}")
    if not rows:
        typer.echo(f"no {query.resource.plural} found", err=True)
        return
    show(rows, columns, Output.TABLE)
