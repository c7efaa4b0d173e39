"""``moxwell cluster``: creates, changes and deletes ``Kubernetes`` objects."""

import os
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

import typer

from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.cozystack import Kubernetes, NodeGroup
from moxwell.api.field_errors import hint, listing
from moxwell.api.kinds import Resource
from moxwell.cli import (
    cluster_rows,
    connect,
    demo,
    kubeconfig_file,
    plan,
    preflight,
    waiting,
)
from moxwell.cli.connect import DEFAULT_NAME, Format, Name, Namespace
from moxwell.cli.dataclass_options import command
from moxwell.cli.output import Output, Progress, count, show
from moxwell.cli.waiting import WAIT_SECONDS, Timeout, Wait
from moxwell.clock import SystemClock
from moxwell.controllers.tenancy.cluster import defaults, instance_types, upgrades
from moxwell.errors import Conflict, Invalid, Missing, MoxwellError, Terminal
from moxwell.kube.client import Kube

app = typer.Typer(help="Tenant clusters.", no_args_is_help=True)
SECRETS = Resource("", "v1", "secrets", "Secret")
ClusterName = Annotated[str, typer.Argument(metavar="CLUSTER", help="Name of the cluster.")]
DEFAULT_NAMESPACE = "tenant-demo"
Json = dict[str, Any]


@app.command()
def create(
    cluster: ClusterName,
    nodes: Annotated[int, typer.Option("--nodes", min=0, help="Number of worker nodes.")] = 3,
    regions: Annotated[
        str, typer.Option("--regions", help="Comma-separated regions. Default: all.")
    ] = "",
    version: Annotated[str, typer.Option("--version", help="Kubernetes version.")] = "",
    size: Annotated[str, typer.Option("--size", help="Instance type.")] = "u1.large",
    namespace: Namespace = DEFAULT_NAMESPACE,
    name: Name = DEFAULT_NAME,
    wait: Wait = True,
    timeout: Timeout = WAIT_SECONDS,
    planned: plan.Only = False,
    output: Format = Output.TABLE,
    skip_checks: preflight.Skip = False,
) -> None:
    """Create a cluster."""
    _check_new(size, version)
    spec: Json = {"nodeGroups": [{"name": "md0", "replicas": nodes, "instanceType": size}]}
    spec |= ({"regions": split(regions)} if regions else {}) | _version(version)
    body = demo.manifest(cluster, namespace, nodes, **spec)
    found = plan.request_plan(name, [body])  # refuses what cannot work, with the nearest word
    if planned:
        plan.show_plan(found, output)
        return
    if not skip_checks:
        preflight.refuse(name, body)

    async def run() -> None:
        async with connect.kube(name) as kube:
            if await demo.create_namespace(kube, namespace):
                typer.echo(f"namespace {namespace} is created", err=True)
            await _create(kube, body)
            await wait_ready(kube, cluster, namespace, wait, timeout)

    waiting.run(run())


async def _create(kube: Kube, body: Json) -> None:
    try:
        await kube.create(body, Kubernetes.resource)
    except Conflict as error:
        name = body["metadata"]["name"]
        text = f"cluster {name} exists already: change it with scale or upgrade"
        raise Invalid(text) from error


def split(text: str) -> list[str]:
    """Comma-separated words."""
    return [word.strip() for word in text.split(",") if word.strip()]


def _version(version: str) -> Json:
    return {"version": version} if version else {}


def _check_new(size: str, version: str) -> None:
    """Refuse what needs no connection: an unknown instance type, and a version that is none."""
    instance_types.size_of(NodeGroup(instance_type=size))
    if version:
        upgrades.check_upgrade("", version)


async def wait_ready(kube: Kube, cluster: str, namespace: str, wait: bool, seconds: int) -> None:
    """Wait until a cluster is ready, or confirm that it was requested."""
    if not wait:
        waiting.requested(f"cluster {cluster}")
        return
    progress = Progress()
    try:
        await demo.wait_ready(kube, cluster, namespace, progress, seconds=seconds)
    finally:
        progress.stop()


@app.command("list")
def list_(
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Only clusters of this namespace.")
    ] = "",
    name: Name = DEFAULT_NAME,
    output: Format = Output.TABLE,
) -> None:
    """List clusters."""
    rows = waiting.run(cluster_rows.clusters(name, namespace))
    columns = ("namespace", "cluster", "version", "nodes", "regions", "state", "endpoint")
    show(rows, columns, output)


@dataclass(frozen=True)
class ClusterOptions:
    """The options of the commands that change a cluster; a subclass adds arguments."""

    cluster: ClusterName
    _: KW_ONLY
    namespace: Namespace = DEFAULT_NAMESPACE
    name: Name = DEFAULT_NAME
    wait: Wait = True
    timeout: Timeout = WAIT_SECONDS
    planned: plan.Only = False
    output: Format = Output.TABLE


@dataclass(frozen=True)
class ScaleOptions(ClusterOptions):
    """The command line of ``moxwell cluster scale``."""

    group: Annotated[str, typer.Argument(help="Node group.")]
    replicas: Annotated[int, typer.Argument(min=0, help="Number of nodes.")]


@app.command()
@command(ScaleOptions)
def scale(options: ScaleOptions) -> None:
    """Change the number of nodes of a node group."""
    change(options, lambda found: scaled(found, options.group, options.replicas))


@dataclass(frozen=True)
class UpgradeOptions(ClusterOptions):
    """The command line of ``moxwell cluster upgrade``."""

    version: Annotated[str, typer.Argument(help="Kubernetes version, such as v1.35.0.")]


@app.command()
@command(UpgradeOptions)
def upgrade(options: UpgradeOptions) -> None:
    """Upgrade a cluster to another Kubernetes version: the control plane, then every node."""
    cluster, version = options.cluster, options.version

    async def finish(kube: Kube) -> None:
        if options.wait:
            await _wait_rolled(kube, cluster, options.namespace, version, options.timeout)
        else:
            waiting.requested(f"the upgrade of cluster {cluster} to {version}")

    change(options, lambda _: {"version": version}, finish)


async def _wait_rolled(
    kube: Kube, cluster: str, namespace: str, version: str, seconds: int
) -> None:
    clock, progress = SystemClock(), Progress()
    deadline = clock.monotonic() + seconds
    try:
        while clock.monotonic() < deadline:
            labels = {"cluster.x-k8s.io/cluster-name": cluster}
            groups = (await kube.list(MachineDeployment, namespace, labels=labels)).items
            found = await kube.get(Kubernetes, cluster, namespace)
            rolled = all(is_rolled(g, version) for g in groups)
            if (
                rolled
                and demo.is_ready(found)
                and upgrades.is_reached(found.status.version, version)
            ):
                progress.done(f"cluster {cluster} runs {found.status.version}")
                return
            new = sum(_updated(g, version) for g in groups)
            total = sum(g.spec.replicas or 0 for g in groups)
            progress.say(
                f"cluster {cluster}: control plane {found.status.version}, "
                f"{new} of {total} nodes on {version}"
            )
            await clock.sleep(1)
    finally:
        progress.stop()
    raise demo.NotReady(
        f"cluster {cluster} is still rolling out after {seconds} s; it continues: "
        "`moxwell status` shows its progress"
    )


def version_matches(wanted: str, running: str | None) -> bool:
    """Whether a version is the wanted one: 1.35.0 is v1.35.0, and v1.35 is any of its patches."""
    full = wanted if wanted.startswith("v") else f"v{wanted}"
    return running == full or (full.count(".") == 1 and (running or "").startswith(f"{full}."))


def _updated(group: MachineDeployment, version: str) -> int:
    """How many machines of a group run a version; 0 until its status is current."""
    status, template = group.status, group.spec.template.spec
    current = status.observed_generation >= group.metadata.generation
    return (
        (status.up_to_date_replicas or 0)
        if current and version_matches(version, template.version)
        else 0
    )


def is_rolled(group: MachineDeployment, version: str) -> bool:
    """Whether all machines of a group run a version, according to a current status."""
    status, wanted = group.status, group.spec.replicas or 0
    if status.observed_generation < group.metadata.generation:
        return False
    updated = status.up_to_date_replicas == status.replicas == status.ready_replicas == wanted
    return updated and version_matches(version, group.spec.template.spec.version)


@app.command()
@command(ClusterOptions)
def delete(options: ClusterOptions) -> None:
    """Delete a cluster: its machines, then its control plane, then its addresses."""
    cluster, namespace = options.cluster, options.namespace

    async def run() -> Json | None:
        async with connect.kube(options.name) as kube:
            found = await get(kube, cluster, namespace)
            if options.planned:
                return await after_change(kube, found, {})
            await kube.delete(Kubernetes, cluster, namespace, uid=found.uid)
            _forget(options.name, cluster, namespace)
            if options.wait:
                await _wait_deleted(kube, cluster, namespace, options.timeout)
            else:
                waiting.requested(f"the deletion of cluster {cluster}")
            return None

    show_plan(options.name, waiting.run(run()), options.output, delete=True)


async def _wait_deleted(kube: Kube, cluster: str, namespace: str, seconds: int) -> None:
    clock, progress = SystemClock(), Progress()
    deadline = clock.monotonic() + seconds
    try:
        while clock.monotonic() < deadline:
            found = await kube.find(Kubernetes, cluster, namespace)
            if found is None:
                progress.done(f"cluster {cluster} is deleted")
                return
            machines = found.status.replicas
            progress.say(
                f"cluster {cluster}: deleting {count(machines, 'machine')}"
                if machines
                else f"cluster {cluster}: deleting remaining resources"
            )
            await clock.sleep(0.5)
    finally:
        progress.stop()
    raise Terminal(
        f"cluster {cluster} still exists after {seconds} s; its deletion continues: "
        "`moxwell doctor` shows why"
    )


def _forget(name: str, cluster: str, namespace: str) -> None:
    """Remove a cluster from the user's kubeconfig file, if it is there."""
    path = kubeconfig_file.default_path(os.environ)
    try:
        kubeconfig_file.remove(path, kubeconfig_file.context_name(name, cluster, namespace))
    except (MoxwellError, OSError) as error:  # the cluster is deleted all the same
        typer.echo(f"{path} still has the cluster: {error}", err=True)


# Changes


def change(
    options: ClusterOptions,
    spec_of: Callable[[Kubernetes], Json],
    finish: Callable[[Kube], Awaitable[None]] | None = None,
) -> None:
    """
    Merge the fields that ``spec_of`` returns into the spec and wait, or print what that would do.

    ``finish`` waits instead of the usual wait until the cluster is ready.
    """

    async def run() -> Json | None:
        async with connect.kube(options.name) as kube:
            planned = await write_change(kube, options, spec_of)
            if planned is None and finish is not None:
                await finish(kube)
            elif planned is None:
                name, namespace = options.cluster, options.namespace
                await wait_ready(kube, name, namespace, options.wait, options.timeout)
            return planned

    show_plan(options.name, waiting.run(run()), options.output)


async def write_change(
    kube: Kube, options: ClusterOptions, spec_of: Callable[[Kubernetes], Json]
) -> Json | None:
    """Write a change; with ``--plan`` the changed cluster is returned and nothing is written."""
    found = await get(kube, options.cluster, options.namespace)
    spec = spec_of(found)
    if options.planned:
        return await after_change(kube, found, spec)
    await put(kube, found, spec)
    return None


async def after_change(kube: Kube, found: Kubernetes, spec: Json) -> Json:
    """The cluster after a change, for the planner."""
    tree = await kube.get(Kubernetes.resource, found.name, found.namespace)
    head = {"apiVersion": Kubernetes.resource.api_version, "kind": "Kubernetes"}
    meta = {"name": found.name, "namespace": found.namespace}
    return {**head, "metadata": meta, "spec": {**(tree.get("spec") or {}), **spec}}


def show_plan(name: str, document: Json | None, output: Output, *, delete: bool = False) -> None:
    """Print what a change would do, if there is one to plan."""
    if document is not None:
        plan.show_plan(plan.request_plan(name, [document], delete=delete), output)


async def get(kube: Kube, cluster: str, namespace: str) -> Kubernetes:
    """The cluster; Missing with the clusters that there are."""
    found = await kube.find(Kubernetes, cluster, namespace)
    if found is None:
        every = (await kube.list(Kubernetes)).items
        known = [f"{k.namespace}/{k.name}" for k in every]
        listed = f"clusters are {listing(known)}" if known else "there are no clusters"
        near = hint(cluster, {k.name for k in every if k.namespace == namespace})
        raise Missing(f"there is no cluster {cluster} in namespace {namespace}{near}; {listed}")
    return found


def scaled(found: Kubernetes, group: str, replicas: int) -> Json:
    """The spec with another number of nodes in a group that no autoscaler sizes."""
    if not found.spec.groups and group == defaults.DEFAULT_GROUP.name:
        return {"nodeGroups": [{"name": group, "replicas": replicas}]}
    if any(g.name == group and g.autoscaled for g in found.spec.groups):
        raise Invalid(f"group {group} is autoscaled: change its minimum and maximum instead")
    return {"nodeGroups": changed(found, group, replicas=replicas)}


def changed(found: Kubernetes, group: str, **fields: Any) -> Any:
    """The node groups in the form that the spec has, list or map, with one of them changed."""
    written = defaults.written_groups(found)
    names = [g.name for g in defaults.groups_of(found)]
    if group not in names:
        groups = ", ".join(names)
        raise Missing(f"there is no node group {group}{hint(group, names)}: groups are {groups}")
    if isinstance(written, dict):
        return {n: {**(g or {}), **(fields if n == group else {})} for n, g in written.items()}
    return [{**g, **(fields if g.get("name") == group else {})} for g in written]


async def put(kube: Kube, found: Kubernetes, spec: dict[str, Any]) -> None:
    """Merge a change into the spec, unless somebody else changed the cluster since."""
    change = {"metadata": {"resourceVersion": found.metadata.resource_version}, "spec": spec}
    await kube.merge(Kubernetes, found.name, change, found.namespace)
