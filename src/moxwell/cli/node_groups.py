"""
``moxwell cluster nodegroup``: lists, adds, removes and resizes the node groups of a cluster.

Changes keep the form in which the spec has its groups: a list of named groups, or a map.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

import typer

from moxwell.api.cozystack import Kubernetes, NodeGroup
from moxwell.api.field_errors import hint
from moxwell.cli import cluster, connect, waiting
from moxwell.cli.connect import DEFAULT_NAME, Format, Name, Namespace
from moxwell.cli.dataclass_options import command
from moxwell.cli.output import Output, show
from moxwell.controllers.tenancy.cluster import instance_types
from moxwell.controllers.tenancy.cluster.defaults import groups_of, written_groups
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


@dataclass(frozen=True)
class GroupOptions(cluster.ClusterOptions):
    """The command line of ``moxwell cluster nodegroup remove``."""

    group: GroupName


@dataclass(frozen=True)
class AddOptions(GroupOptions):
    """The command line of ``moxwell cluster nodegroup add``."""

    _: KW_ONLY
    nodes: Annotated[int, typer.Option("--nodes", min=0, help="Number of nodes.")] = 1
    size: Annotated[str, typer.Option("--size", help="Instance type.")] = "u1.large"
    regions: Annotated[
        str, typer.Option("--regions", help="Comma-separated regions. Default: the cluster's.")
    ] = ""


@app.command()
@command(AddOptions)
def add(options: AddOptions) -> None:
    """Add a node group."""
    instance_types.size_of(NodeGroup(instance_type=options.size))
    fields: Json = {"replicas": options.nodes, "instanceType": options.size}
    if options.regions:
        fields["regions"] = cluster.split(options.regions)
    cluster.change(options, lambda found: _spec(with_group(found, options.group, fields)))


@app.command()
@command(GroupOptions)
def remove(options: GroupOptions) -> None:
    """Remove a node group: its nodes are drained and deleted."""
    cluster.change(options, lambda found: _spec(without_group(found, options.group)))


@dataclass(frozen=True)
class ResizeOptions(GroupOptions):
    """The command line of ``moxwell cluster nodegroup resize``."""

    size: Annotated[str, typer.Argument(help="Instance type, such as u1.xlarge.")]


@app.command()
@command(ResizeOptions)
def resize(options: ResizeOptions) -> None:
    """Change the instance type of a node group: its nodes are replaced one after the other."""
    group, size = options.group, options.size
    instance_types.size_of(NodeGroup(instance_type=size))
    cluster.change(options, lambda found: _spec(cluster.changed(found, group, instanceType=size)))


def _spec(groups: Any) -> Json:
    return {"nodeGroups": groups}


def with_group(found: Kubernetes, group: str, fields: Json) -> Any:
    """The node groups with a new one."""
    names, written = [g.name for g in groups_of(found)], written_groups(found)
    if group in names:
        raise Invalid(f"node group {group} exists already: use scale or nodegroup resize")
    if isinstance(written, dict):
        return {**written, group: _as_map_entry(fields)}
    return [*written, {"name": group, **fields}]


def _as_map_entry(fields: Json) -> Json:
    """CozyStack's form of a group: bounds of the number of nodes instead of the number."""
    rest = {k: v for k, v in fields.items() if k != "replicas"}
    return {"minReplicas": fields["replicas"], "maxReplicas": fields["replicas"], **rest}


def without_group(found: Kubernetes, group: str) -> Any:
    """The node groups without one of them."""
    names, written = [g.name for g in groups_of(found)], written_groups(found)
    if group not in names:
        groups = ", ".join(names)
        raise Missing(f"there is no node group {group}{hint(group, names)}: groups are {groups}")
    if len(names) == 1:
        raise Invalid(f"{group} is the only node group: scale it to 0, or delete the cluster")
    if isinstance(written, dict):
        return {n: (None if n == group else g) for n, g in written.items()}  # null removes
    return [g for g in written if g.get("name") != group]


def rows(found: Kubernetes) -> list[Json]:
    """The node groups of a cluster as rows."""
    status = {g.name: g for g in found.status.groups}
    return [_row(group, status.get(group.name), found) for group in groups_of(found)]


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
