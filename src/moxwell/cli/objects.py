"""``moxwell apply`` and ``delete``: for those without kubectl. With ``--plan`` nothing happens."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from moxwell.api.kinds import Resource
from moxwell.cli import connect, kinds, manifests, plan
from moxwell.cli.connect import DEFAULT_NAME, Format, Name
from moxwell.cli.output import Output

Json = dict[str, Any]
MANAGER = "moxwell-cli"
Files = Annotated[list[Path], typer.Option("--file", "-f", help="A manifest; - reads stdin.")]
Space = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace; default where it has one.")
]


def apply(
    file: Files,
    name: Name = DEFAULT_NAME,
    namespace: Space = "default",
    planned: plan.Only = False,
    output: Format = Output.TABLE,
) -> None:
    """Make or change the objects of a file."""
    documents = manifests.read(file)
    if planned:
        plan.show_report(plan.ask(name, _placed(documents, namespace)), output)
        return

    async def run() -> None:
        async with connect.kube(name) as kube:
            served = await kube.discover()
            for doc in documents:
                resource = kinds.of_object(served, doc)
                if resource.namespaced:
                    doc["metadata"].setdefault("namespace", namespace)
                await kube.apply(doc, resource, manager=MANAGER, force=True)
                typer.echo(f"{resource.kind} {doc['metadata']['name']} applied")

    asyncio.run(run())


def _placed(documents: list[Json], namespace: str) -> list[Json]:
    """As they would be applied; the namespace of what has none is left out by the planner."""
    return [
        {**doc, "metadata": {"namespace": namespace, **(doc.get("metadata") or {})}}
        for doc in documents
    ]


def delete(
    kind: Annotated[str, typer.Argument(help="A kind, in any of its names; or KIND/NAME.")] = "",
    called: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="These objects.")
    ] = None,
    file: Annotated[
        list[Path] | None, typer.Option("--file", "-f", help="The objects of a manifest.")
    ] = None,
    name: Name = DEFAULT_NAME,
    namespace: Space = "default",
    planned: plan.Only = False,
    output: Format = Output.TABLE,
) -> None:
    """Delete objects; what they made goes with them."""
    words = [w.split("/", 1) for w in [kind, *(called or ())]] if "/" in kind else []
    pairs = [(w[0], w[1]) for w in words if len(w) == 2] or [(kind, n) for n in called or ()]
    if not file and not pairs:
        raise typer.BadParameter("say a kind and a name, or -f FILE")

    async def run() -> list[Json]:
        async with connect.kube(name) as kube:
            served = await kube.discover()
            rows = [(kinds.by_name(served, k), n, namespace) for k, n in pairs]
            for doc in manifests.read(file) if file else []:
                meta = doc["metadata"]
                rows.append(
                    (kinds.of_object(served, doc), meta["name"], meta.get("namespace", namespace))
                )
            if planned:
                return [_naming(r, one, space) for r, one, space in reversed(rows)]
            for resource, one, space in reversed(rows):
                await kube.delete(resource, one, space if resource.namespaced else "")
                typer.echo(f"{resource.kind} {one} is being deleted")
            return []

    doomed = asyncio.run(run())
    if planned:
        plan.show_report(plan.ask(name, doomed, delete=True), output)


def _naming(resource: Resource, name: str, namespace: str) -> Json:
    meta = {"name": name} | ({"namespace": namespace} if resource.namespaced else {})
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
