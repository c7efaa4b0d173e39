"""
``moxwell get``: objects as kubectl users ask for them.

In flow words (``pods``, ``po/web``, ``machines,nodes``), a namespace, a selector; out flow tables
of the server's own columns, names, or objects as JSON or YAML: one object as it is, several as a
``List``. Without a namespace all are shown; a name is looked for in all, and must be one.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from moxwell.api.kinds import Resource
from moxwell.cli import connect, kinds
from moxwell.cli.connect import DEFAULT_NAME, Name
from moxwell.cli.output import Output, show, show_value
from moxwell.errors import Invalid, Missing
from moxwell.kube.client import Kube
from moxwell.kube.discovery import Served

Json = dict[str, Any]


class Printing(StrEnum):
    """How to print objects."""

    TABLE = "table"
    WIDE = "wide"
    NAME = "name"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Objects of one kind: one by name, or all that match."""

    resource: Resource
    name: str = ""
    namespace: str = ""
    selector: str = ""


def get(
    kind: Annotated[
        str, typer.Argument(help="Kinds in any of their names, with commas; or KIND/NAME.")
    ],
    called: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these.")
    ] = None,
    name: Name = DEFAULT_NAME,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Only there.")] = "",
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Everywhere; so it is without -n, too.")
    ] = False,
    selector: Annotated[
        str, typer.Option("--selector", "-l", help="Labels, such as app=web,tier!=db.")
    ] = "",
    output: Annotated[
        Printing, typer.Option("--output", "-o", help="How to print.")
    ] = Printing.TABLE,
) -> None:
    """Print objects."""
    if everywhere and namespace:
        raise typer.BadParameter("-A means all namespaces, -n one: say one of them")

    async def run() -> None:
        async with connect.kube(name) as kube:
            served = await kube.discover()
            asked = wanted(served, [kind, *(called or ())], namespace, selector)
            await answer(kube, asked, output)

    asyncio.run(run())


def wanted(
    served: Sequence[Served], words: Sequence[str], namespace: str, selector: str
) -> list[Wanted]:
    """What the words mean: ``KIND[,KIND] [NAME…]`` or ``KIND/NAME…``."""
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


def _one(resource: Resource, name: str, namespace: str, selector: str) -> Wanted:
    return Wanted(resource, name, namespace if resource.namespaced else "", selector)


async def answer(kube: Kube, asked: Sequence[Wanted], output: Printing) -> None:
    """Print what was asked for."""
    if output in (Printing.TABLE, Printing.WIDE):
        for number, one in enumerate(asked):
            if number:
                typer.echo("")
            await _table(kube, one, wide=output is Printing.WIDE)
        return
    found = [(one, obj) for one in asked for obj in await fetch(kube, one)]
    if output is Printing.NAME:
        for one, obj in found:
            typer.echo(f"{_typed(one.resource)}/{obj['metadata']['name']}")
        return
    objects = [obj for _, obj in found]
    single = len(asked) == 1 and bool(asked[0].name)
    show_value(objects[0] if single else as_list(objects), Output(output.value))


def _typed(resource: Resource) -> str:
    """As ``kubectl -o name`` writes it: ``pod``, ``machine.cluster.x-k8s.io``."""
    kind = resource.kind.lower()
    return f"{kind}.{resource.group}" if resource.group else kind


def as_list(objects: Sequence[Json]) -> Json:
    """Several objects as kubectl prints them."""
    head = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}}
    return {**head, "items": list(objects)}


async def fetch(kube: Kube, one: Wanted) -> list[Json]:
    """The objects, each with its apiVersion and kind."""
    head = {"apiVersion": one.resource.api_version, "kind": one.resource.kind}
    if one.name and (one.namespace or not one.resource.namespaced):
        return [{**head, **await kube.get(one.resource, one.name, one.namespace)}]
    page = await kube.list(one.resource, one.namespace, labels=one.selector)
    rows = [{**head, **obj} for obj in page.items]
    if not one.name:
        return rows
    return [_only(one, [r for r in rows if r["metadata"]["name"] == one.name])]


def _only(one: Wanted, rows: list[Json]) -> Json:
    if not rows:
        raise Missing(f"there is no {one.resource.kind} {one.name} in any namespace")
    if len(rows) > 1:
        spaces = ", ".join(sorted(r["metadata"]["namespace"] for r in rows))
        raise Invalid(f"{one.resource.kind} {one.name} is in {spaces}: say which one with -n")
    return rows[0]


async def _table(kube: Kube, one: Wanted, *, wide: bool) -> None:
    table = await kube.table(one.resource, one.namespace, labels=one.selector)
    shown = [i for i, c in enumerate(table.columns) if wide or c.priority == 0]
    columns = [table.columns[i].name for i in shown]
    rows: list[Json] = []
    for row in table.rows:
        meta = row.object.metadata
        if one.name and meta.name != one.name:
            continue
        cells = dict(zip(columns, (row.cells[i] for i in shown), strict=True))
        rows.append(({"namespace": meta.namespace} if one.resource.namespaced else {}) | cells)
    if one.name and not rows:
        where = f"namespace {one.namespace}" if one.namespace else "any namespace"
        raise Missing(f"there is no {one.resource.kind} {one.name} in {where}")
    if not rows:
        typer.echo(f"no {one.resource.plural} found", err=True)
        return
    show(rows, (["namespace"] if one.resource.namespaced else []) + columns, Output.TABLE)
