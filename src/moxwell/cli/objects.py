"""``moxwell apply`` and ``delete``, for users without kubectl; ``--plan`` only shows the effect."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from moxwell.api.cozystack import Kubernetes, Tenant
from moxwell.api.kinds import Resource
from moxwell.cli import connect, kinds, manifests, plan, program
from moxwell.cli.connect import DEFAULT_NAME, Format, Name
from moxwell.cli.output import Output
from moxwell.clock import SystemClock
from moxwell.errors import Unreachable
from moxwell.kube import served_kinds
from moxwell.kube.client import Kube

Json = dict[str, Any]
MANAGER = "moxwell-cli"
TENANT_SECONDS = 60.0  # how long to wait for the namespace and the quota of a tenant
Files = Annotated[
    list[Path], typer.Option("--file", "-f", help="File with manifests; - is standard input.")
]
ObjectNamespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace of objects that name none.")
]


def apply(
    file: Files,
    name: Name = DEFAULT_NAME,
    namespace: ObjectNamespace = "default",
    planned: plan.Only = False,
    output: Format = Output.TABLE,
) -> None:
    """Apply the objects of a file."""
    documents = manifests.in_order(manifests.read(file))
    manifests.check_fields(documents)
    if planned:
        plan.show_plan(plan.request_plan(name, _with_namespace(documents, namespace)), output)
        return

    async def run() -> None:
        async with connect.kube(name) as kube:
            await apply_documents(kube.with_strict_fields(), documents, namespace)

    asyncio.run(run())


async def apply_documents(kube: Kube, documents: list[Json], namespace: str) -> None:
    """Apply objects in order; those of a tenant wait until its namespace and quota are written."""
    served = await kube.discover()
    tenants: list[Json] = []
    for doc in documents:
        resource = served_kinds.of_object(served, doc)
        if resource.namespaced:
            doc["metadata"].setdefault("namespace", namespace)
            while tenants:
                await _wait_tenant(kube, tenants.pop(0))
        found = await kube.apply(doc, resource, manager=MANAGER, force=True)
        tenants += [found] if resource.kind == Tenant.resource.kind else []
        typer.echo(f"{resource.kind} {doc['metadata']['name']} applied")
        if resource == Kubernetes.resource:
            meta = doc["metadata"]
            follow = f"`moxwell explain cluster {meta['name']} -n {meta['namespace']}`"
            typer.echo(program.current().localize(f"follow it with {follow}"), err=True)


async def _wait_tenant(kube: Kube, applied: Json) -> None:
    meta, clock = applied["metadata"], SystemClock()
    deadline = clock.monotonic() + TENANT_SECONDS
    while True:
        found = await kube.get(Tenant, meta["name"], meta["namespace"])
        if found.status.observed_generation >= meta["generation"] and found.status.namespace:
            return
        if clock.monotonic() > deadline:
            raise Unreachable(
                f"tenant {found.name} has no namespace after {TENANT_SECONDS:.0f} s; the rest of "
                "the file was not applied: look at its conditions and apply the file again"
            )
        await clock.sleep(0.2)


def _with_namespace(documents: list[Json], namespace: str) -> list[Json]:
    """The objects with a namespace; the planner ignores it for cluster-scoped kinds."""
    return [
        {**doc, "metadata": {"namespace": namespace, **(doc.get("metadata") or {})}}
        for doc in documents
    ]


def delete(
    kind: Annotated[str, typer.Argument(help="Kind, or KIND/NAME.")] = "",
    called: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Names of the objects.")
    ] = None,
    file: Annotated[
        list[Path] | None, typer.Option("--file", "-f", help="File with manifests of the objects.")
    ] = None,
    name: Name = DEFAULT_NAME,
    namespace: ObjectNamespace = "default",
    planned: plan.Only = False,
    output: Format = Output.TABLE,
) -> None:
    """Delete objects and what they own."""
    words = [w.split("/", 1) for w in [kind, *(called or ())]] if "/" in kind else []
    pairs = [(w[0], w[1]) for w in words if len(w) == 2] or [(kind, n) for n in called or ()]
    if not file and not pairs:
        raise typer.BadParameter("give a kind and a name, or -f FILE")

    async def run() -> list[Json]:
        async with connect.kube(name) as kube:
            served = await kube.discover()
            rows = [(kinds.by_name(served, k), n, namespace) for k, n in pairs]
            for doc in manifests.in_order(manifests.read(file)) if file else []:
                meta = doc["metadata"]
                resource = served_kinds.of_object(served, doc)
                rows.append((resource, meta["name"], meta.get("namespace", namespace)))
            if planned:
                return [_manifest(r, one, space) for r, one, space in reversed(rows)]
            for resource, one, space in reversed(rows):
                await kinds.get(kube, resource, one, space)
                await kube.delete(resource, one, space if resource.namespaced else "")
                typer.echo(f"{resource.kind} {one} is being deleted")
            return []

    documents = asyncio.run(run())
    if planned:
        plan.show_plan(plan.request_plan(name, documents, delete=True), output)


def _manifest(resource: Resource, name: str, namespace: str) -> Json:
    meta = {"name": name} | ({"namespace": namespace} if resource.namespaced else {})
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
