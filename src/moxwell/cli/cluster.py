"""``moxwell cluster``: tenant clusters from the command line, as objects kubectl would write."""

import asyncio
import base64
from pathlib import Path
from typing import Annotated, Any

import typer

from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.cozystack import Kubernetes
from moxwell.api.kinds import Resource
from moxwell.cli import cluster_rows, connect, demo, plan
from moxwell.cli.connect import DEFAULT_NAME, Format, Name, Namespace
from moxwell.cli.output import Output, Progress, show
from moxwell.clock import SystemClock
from moxwell.errors import Conflict, Invalid, Missing, Terminal
from moxwell.kube.client import Kube
from moxwell.kube.errors import NotFound

app = typer.Typer(help="Tenant clusters.", no_args_is_help=True)
SECRETS = Resource("", "v1", "secrets", "Secret")
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done.")]
Cluster = Annotated[str, typer.Argument(help="Name of the cluster.")]
SPACE = "tenant-demo"
Json = dict[str, Any]
PATIENCE = 900


@app.command()
def create(
    cluster: Cluster,
    nodes: Annotated[int, typer.Option("--nodes", min=0, help="How many workers.")] = 3,
    regions: Annotated[
        str, typer.Option("--regions", help="Regions, with commas; all if not given.")
    ] = "",
    version: Annotated[str, typer.Option("--version", help="Kubernetes version.")] = "",
    size: Annotated[str, typer.Option("--size", help="Instance type.")] = "u1.large",
    namespace: Namespace = SPACE,
    name: Name = DEFAULT_NAME,
    wait: Wait = True,
    planned: plan.Only = False,
    output: Format = Output.TABLE,
) -> None:
    """Make a cluster."""
    spec: dict[str, Any] = {
        "nodeGroups": [{"name": "md0", "replicas": nodes, "instanceType": size}],
    }
    if regions:
        spec["regions"] = [r.strip() for r in regions.split(",") if r.strip()]
    if version:
        spec["version"] = version
    body = demo.manifest(cluster, namespace, nodes, **spec)
    if planned:
        plan.show_report(plan.ask(name, [body]), output)
        return

    async def run() -> None:
        async with connect.kube(name) as kube:
            await demo.make_namespace(kube, namespace)
            try:
                await kube.create(body, Kubernetes.resource)
            except Conflict as error:
                raise Invalid(
                    f"cluster {cluster} is there already: change it with scale or upgrade"
                ) from error
            await _await(kube, cluster, namespace, wait)

    asyncio.run(run())


async def _await(kube: Kube, cluster: str, namespace: str, wait: bool) -> None:
    if not wait:
        typer.echo(f"cluster {cluster} is asked for")
        return
    progress = Progress()
    try:
        await demo.wait_ready(kube, cluster, namespace, progress, seconds=PATIENCE)
    finally:
        progress.stop()


@app.command("list")
def list_(name: Name = DEFAULT_NAME, output: Format = Output.TABLE) -> None:
    """All clusters."""
    rows = asyncio.run(cluster_rows.clusters(name))
    columns = ("namespace", "cluster", "version", "nodes", "regions", "state", "endpoint")
    show(rows, columns, output)


@app.command()
def scale(
    cluster: Cluster,
    group: Annotated[str, typer.Argument(help="Node group.")],
    replicas: Annotated[int, typer.Argument(min=0, help="How many nodes.")],
    namespace: Namespace = SPACE,
    name: Name = DEFAULT_NAME,
    wait: Wait = True,
    planned: plan.Only = False,
    output: Format = Output.TABLE,
) -> None:
    """Change how many nodes a group has."""

    async def run() -> Json | None:
        async with connect.kube(name) as kube:
            found = await _get(kube, cluster, namespace)
            if any(g.name == group and g.autoscaled for g in found.spec.groups):
                raise Invalid(f"group {group} is sized by an autoscaler: change its bounds instead")
            groups = _changed(found, group, replicas=replicas)
            if planned:
                return await _as_planned(kube, found, {"nodeGroups": groups})
            await _put(kube, found, {"nodeGroups": groups})
            await _await(kube, cluster, namespace, wait)
            return None

    _tell_plan(name, asyncio.run(run()), output)


@app.command()
def upgrade(
    cluster: Cluster,
    version: Annotated[str, typer.Argument(help="Kubernetes version, such as v1.35.0.")],
    namespace: Namespace = SPACE,
    name: Name = DEFAULT_NAME,
    wait: Wait = True,
    planned: plan.Only = False,
    output: Format = Output.TABLE,
) -> None:
    """Take a cluster to another Kubernetes version: the control plane first, then every node."""

    async def run() -> Json | None:
        async with connect.kube(name) as kube:
            found = await _get(kube, cluster, namespace)
            if planned:
                return await _as_planned(kube, found, {"version": version})
            await _put(kube, found, {"version": version})
            if wait:
                await _await_rolled(kube, cluster, namespace, version)
            return None

    _tell_plan(name, asyncio.run(run()), output)


async def _await_rolled(kube: Kube, cluster: str, namespace: str, version: str) -> None:
    clock, progress = SystemClock(), Progress()
    deadline = clock.monotonic() + PATIENCE
    try:
        while clock.monotonic() < deadline:
            labels = {"cluster.x-k8s.io/cluster-name": cluster}
            groups = (await kube.list(MachineDeployment, namespace, labels=labels)).items
            found = await kube.get(Kubernetes, cluster, namespace)
            rolled = all(is_rolled(g, version) for g in groups)
            if rolled and demo.is_ready(found) and is_meant(version, found.status.version):
                progress.done(f"cluster {cluster} runs {found.status.version}")
                return
            new = sum(_new(g, version) for g in groups)
            total = sum(g.spec.replicas or 0 for g in groups)
            progress.say(
                f"cluster {cluster}: control plane {found.status.version}, "
                f"{new} of {total} nodes on {version}"
            )
            await clock.sleep(1)
    finally:
        progress.stop()
    raise demo.NotReady(f"cluster {cluster} still rolls; `moxwell status` shows how far it is")


def is_meant(asked: str, runs: str | None) -> bool:
    """Whether that version was asked for: 1.35.0 is v1.35.0, and v1.35 any of its patches."""
    whole = asked if asked.startswith("v") else f"v{asked}"
    return runs == whole or (whole.count(".") == 1 and (runs or "").startswith(f"{whole}."))


def _new(group: MachineDeployment, version: str) -> int:
    """How many of a group run a version; none before its turn has come and was seen."""
    status, template = group.status, group.spec.template.spec
    seen = status.observed_generation >= group.metadata.generation
    return (status.up_to_date_replicas or 0) if seen and is_meant(version, template.version) else 0


def is_rolled(group: MachineDeployment, version: str) -> bool:
    """Whether all of a group runs a version; what it says counts for the spec it has now only."""
    status, wanted = group.status, group.spec.replicas or 0
    if status.observed_generation < group.metadata.generation:
        return False
    settled = status.up_to_date_replicas == status.replicas == status.ready_replicas == wanted
    return settled and is_meant(version, group.spec.template.spec.version)


@app.command()
def kubeconfig(
    cluster: Cluster,
    namespace: Namespace = SPACE,
    name: Name = DEFAULT_NAME,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Write it there, 0600, instead of printing.")
    ] = None,
) -> None:
    """Print the kubeconfig of a cluster."""

    async def run() -> bytes:
        async with connect.kube(name) as kube:
            try:
                secret = await kube.get(SECRETS, f"{cluster}-kubeconfig", namespace)
            except NotFound as error:
                await _get(kube, cluster, namespace)
                raise demo.NotReady(
                    f"cluster {cluster} has no kubeconfig yet: its control plane is starting"
                ) from error
            return base64.b64decode(secret["data"]["value"])

    text = asyncio.run(run())
    if file is None:
        typer.echo(text.decode(), nl=False)
        return
    file.touch(mode=0o600)
    file.chmod(0o600)
    file.write_bytes(text)


@app.command()
def delete(
    cluster: Cluster,
    namespace: Namespace = SPACE,
    name: Name = DEFAULT_NAME,
    wait: Wait = True,
    planned: plan.Only = False,
    output: Format = Output.TABLE,
) -> None:
    """Delete a cluster: machines, then control plane, then addresses. Nothing of it is left."""

    async def run() -> Json | None:
        async with connect.kube(name) as kube:
            found = await _get(kube, cluster, namespace)
            if planned:
                return await _as_planned(kube, found, {})
            await kube.delete(Kubernetes, cluster, namespace, uid=found.uid)
            if wait:
                await _await_gone(kube, cluster, namespace)
            return None

    _tell_plan(name, asyncio.run(run()), output, delete=True)


async def _await_gone(kube: Kube, cluster: str, namespace: str) -> None:
    clock, progress = SystemClock(), Progress()
    deadline = clock.monotonic() + PATIENCE
    try:
        while clock.monotonic() < deadline:
            found = await kube.find(Kubernetes, cluster, namespace)
            if found is None:
                progress.done(f"cluster {cluster} is gone")
                return
            left = found.status.replicas
            progress.say(f"cluster {cluster}: {left} machines left" if left else "its last things")
            await clock.sleep(0.5)
    finally:
        progress.stop()
    raise Terminal(f"cluster {cluster} is still there: `moxwell doctor` says what holds it")


# Changing


async def _as_planned(kube: Kube, found: Kubernetes, spec: Json) -> Json:
    """The cluster as a change would leave it: what the planner is asked about."""
    tree = await kube.get(Kubernetes.resource, found.name, found.namespace)
    head = {"apiVersion": Kubernetes.resource.api_version, "kind": "Kubernetes"}
    meta = {"name": found.name, "namespace": found.namespace}
    return {**head, "metadata": meta, "spec": {**(tree.get("spec") or {}), **spec}}


def _tell_plan(name: str, document: Json | None, output: Output, *, delete: bool = False) -> None:
    if document is not None:
        plan.show_report(plan.ask(name, [document], delete=delete), output)


async def _get(kube: Kube, cluster: str, namespace: str) -> Kubernetes:
    found = await kube.find(Kubernetes, cluster, namespace)
    if found is None:
        known = sorted(f"{k.namespace}/{k.name}" for k in (await kube.list(Kubernetes)).items)
        listed = f"there are {', '.join(known)}" if known else "there are none yet"
        raise Missing(f"there is no cluster {cluster} in {namespace}; {listed}")
    return found


def _changed(found: Kubernetes, group: str, **fields: Any) -> Any:
    """The node groups in the form they were written, with one of them changed."""
    written = found.spec.node_groups
    names = [g.name for g in found.spec.groups]
    if written is None and group == "md0":
        return [{"name": "md0", **fields}]
    if group not in names:
        raise Missing(f"there is no group {group}: there are {', '.join(names)}")
    if isinstance(written, dict):
        return {n: {**(g or {}), **(fields if n == group else {})} for n, g in written.items()}
    return [{**g, **(fields if g.get("name") == group else {})} for g in written]


async def _put(kube: Kube, found: Kubernetes, spec: dict[str, Any]) -> None:
    change = {"metadata": {"resourceVersion": found.metadata.resource_version}, "spec": spec}
    await kube.merge(Kubernetes, found.name, change, found.namespace)
