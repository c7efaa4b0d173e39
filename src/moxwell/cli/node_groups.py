"""
``moxwell cluster nodegroup``: lists, adds, removes and resizes the node groups of a cluster.

Changes keep the form in which the spec has its groups: a list of named groups, or a map.
"""

from typing import Annotated, Any

import typer

from moxwell.api.cozystack import Kubernetes, NodeGroup
from moxwell.cli import cluster, connect, plan, waiting
from moxwell.cli.connect import DEFAULT_NAME, Format, Name, Namespace
from moxwell.cli.output import Output, show
from moxwell.cli.waiting import WAIT_SECONDS, Timeout, Wait
from moxwell.controllers.tenancy.cluster import instance_types
from moxwell.errors import Invalid, Missing

app = typer.Typer(help="Node groups of a cluster.", no_args_is_help=True)
Json = dict[str, Any]
GroupName = Annotated[str, typer.Argument(help="Name of the node group.")]
COLUMNS = ("group", "nodes", "instance type", "cpu", "memory", "disk", "regions")


@app.command("list")
def list_(
    called: cluster.ClusterName,
    namespace: Namespace = cluster.DEFAULT_NAMESPACE,
    name: Name = DEFAULT_NAME,
    output: Format = Output.TABLE,
) -> None:
    """List the node groups."""

    async def run() -> list[Json]:
        async with connect.kube(name) as kube:
            return rows(await cluster.get(kube, called, namespace))

    show(waiting.run(run()), COLUMNS, output)


@app.command()
def add(
    called: cluster.ClusterName,
    group: GroupName,
    nodes: Annotated[int, typer.Option("--nodes", min=0, help="Number of nodes.")] = 1,
    size: Annotated[str, typer.Option("--size", help="Instance type.")] = "u1.large",
    regions: Annotated[
        str, typer.Option("--regions", help="Comma-separated regions. Default: the cluster's.")
    ] = "",
    namespace: Namespace = cluster.DEFAULT_NAMESPACE,
    name: Name = DEFAULT_NAME,
    wait: Wait = True,
    timeout: Timeout = WAIT_SECONDS,
    planned: plan.Only = False,
    output: Format = Output.TABLE,
) -> None:
    """Add a node group."""
    instance_types.size_of(NodeGroup(instance_type=size))
    fields: Json = {"replicas": nodes, "instanceType": size}
    if regions:
        fields["regions"] = cluster.split(regions)

    def changed(found: Kubernetes) -> Any:
        return with_group(found, group, fields)

    _change(called, namespace, name, changed, wait, timeout, planned, output)


@app.command()
def remove(
    called: cluster.ClusterName,
    group: GroupName,
    namespace: Namespace = cluster.DEFAULT_NAMESPACE,
    name: Name = DEFAULT_NAME,
    wait: Wait = True,
    timeout: Timeout = WAIT_SECONDS,
    planned: plan.Only = False,
    output: Format = Output.TABLE,
) -> None:
    """Remove a node group: its nodes are drained and deleted."""

    def changed(found: Kubernetes) -> Any:
        return without_group(found, group)

    _change(called, namespace, name, changed, wait, timeout, planned, output)


@app.command()
def resize(
    called: cluster.ClusterName,
    group: GroupName,
    size: Annotated[str, typer.Argument(help="Instance type, such as u1.xlarge.")],
    namespace: Namespace = cluster.DEFAULT_NAMESPACE,
    name: Name = DEFAULT_NAME,
    wait: Wait = True,
    timeout: Timeout = WAIT_SECONDS,
    planned: plan.Only = False,
    output: Format = Output.TABLE,
) -> None:
    """Change the instance type of a node group: its nodes are replaced one after the other."""
    instance_types.size_of(NodeGroup(instance_type=size))

    def changed(found: Kubernetes) -> Any:
        return cluster.changed(found, group, instanceType=size)

    _change(called, namespace, name, changed, wait, timeout, planned, output)


def _change(
    called: str,
    namespace: str,
    name: str,
    changed: Any,
    wait: bool,
    timeout: int,
    planned: bool,
    output: Output,
) -> None:
    """Write the node groups that ``changed`` computes, or print what that would do."""

    async def run() -> Json | None:
        async with connect.kube(name) as kube:
            found = await cluster.get(kube, called, namespace)
            spec = {"nodeGroups": changed(found)}
            if planned:
                return await cluster.after_change(kube, found, spec)
            await cluster.put(kube, found, spec)
            await cluster.wait_ready(kube, called, namespace, wait, timeout)
            return None

    cluster.show_plan(name, waiting.run(run()), output)


def with_group(found: Kubernetes, group: str, fields: Json) -> Any:
    """The node groups with a new one."""
    names, written = [g.name for g in found.spec.groups], found.spec.node_groups
    if group in names:
        raise Invalid(f"node group {group} exists already: use scale or nodegroup resize")
    if isinstance(written, dict):
        return {**written, group: _as_map_entry(fields)}
    return [*(written or [{"name": n} for n in names]), {"name": group, **fields}]


def _as_map_entry(fields: Json) -> Json:
    """CozyStack's form of a group: bounds of the number of nodes instead of the number."""
    rest = {k: v for k, v in fields.items() if k != "replicas"}
    return {"minReplicas": fields["replicas"], "maxReplicas": fields["replicas"], **rest}


def without_group(found: Kubernetes, group: str) -> Any:
    """The node groups without one of them."""
    names, written = [g.name for g in found.spec.groups], found.spec.node_groups
    if group not in names:
        raise Missing(f"there is no node group {group}: groups are {', '.join(names)}")
    if len(names) == 1:
        raise Invalid(f"{group} is the only node group: scale it to 0, or delete the cluster")
    if isinstance(written, dict):
        return {n: (None if n == group else g) for n, g in written.items()}  # null removes
    return [g for g in written if g.get("name") != group]


def rows(found: Kubernetes) -> list[Json]:
    """The node groups of a cluster as rows."""
    status = {g.name: g for g in found.status.groups}
    return [_row(group, status.get(group.name), found) for group in found.spec.groups]


def _row(group: NodeGroup, status: Any, found: Kubernetes) -> Json:
    size = instance_types.size_of(group)
    wanted = group.replicas if group.replicas is not None else _bounds(group)
    ready = status.ready if status is not None else 0
    return {
        "group": group.name,
        "nodes": f"{ready}/{wanted}",
        "instance type": group.instance_type or instance_types.DEFAULT_TYPE,
        "cpu": size.cores,
        "memory": f"{size.memory_mib / 1024:g} GiB",
        "disk": f"{size.disk_gib} GiB",
        "regions": list(group.regions or found.spec.regions) or "all",
    }


def _bounds(group: NodeGroup) -> str:
    return f"{group.min_replicas or 0}..{group.max_replicas or 0}"
