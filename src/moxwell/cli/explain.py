"""
``moxwell explain``: conditions of a cluster or machine, its next steps, the reason for its host;
why a node of a node pool exists, and where a pod goes.

The plan of a cluster, the hosts of a machine, nodes and pods come from the daemon.
"""

import asyncio
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from moxwell.api.capi.core import Machine
from moxwell.api.conditions import Condition
from moxwell.api.cozystack import Kubernetes
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.kinds import Object
from moxwell.cli import connect
from moxwell.cli.cluster import DEFAULT_NAMESPACE
from moxwell.cli.connect import DEFAULT_NAME, Format, Name, Namespace
from moxwell.cli.output import Output, show, show_value
from moxwell.errors import Missing, Unreachable
from moxwell.kube.client import Kube

Row = dict[str, Any]


class What(StrEnum):
    """Kinds that can be explained."""

    CLUSTER = "cluster"
    MACHINE = "machine"
    NODE = "node"
    POD = "pod"


def explain(
    what: Annotated[What, typer.Argument(help="cluster, machine, node or pod.")],
    called: Annotated[
        str, typer.Argument(metavar="NAME", help="Its name; of a pod: [NAMESPACE/]NAME.")
    ],
    namespace: Namespace = DEFAULT_NAMESPACE,
    cluster: Annotated[
        str, typer.Option("--cluster", help="The tenant cluster of a node or pod.")
    ] = "demo",
    name: Name = DEFAULT_NAME,
    output: Format = Output.TABLE,
) -> None:
    """
    Explain an object: its conditions, what happens next and, for a machine, why each host was
    chosen or rejected. For a pod: the node that the autoscaler creates for it, or why it creates
    none. For a node of a node pool: why it exists, when it is removed, and what that saves.
    """
    if what in (What.NODE, What.POD):
        _show_scaled(name, what, f"{namespace}/{cluster}", called, output)
        return
    look = _cluster if what is What.CLUSTER else _machine
    found = asyncio.run(look(name, namespace, called))
    if what is What.MACHINE:
        found["hosts"] = _hosts(name, namespace, called)
    else:
        found["plan"] = ask(name, "explain", kind="cluster", key=f"{namespace}/{called}")
    if output is not Output.TABLE:
        show_value(found, output)
        return
    _showstate_of(what, called, found, output)


def _showstate_of(what: What, called: str, found: Row, output: Output) -> None:
    typer.echo(f"{what} {called}: {found['state']}")
    if what is What.MACHINE:
        typer.echo(f"next: {found['next'] or 'nothing'}\n")
    else:
        _show_cluster_plan(found["plan"], next_without_writes(found["conditions"]))
    show(found["conditions"], ("condition", "status", "reason", "message"), output)
    for title, columns in (
        ("machines", ("machine", "region", "host", "vmid", "state", "next")),
        ("hosts", ("host", "verdict", "because")),
    ):
        if found.get(title):
            typer.echo("")
            show(found[title], columns, output)


def _show_scaled(name: str, what: What, cluster: str, called: str, output: Output) -> None:
    """What the autoscaler of a tenant cluster decides about a pod or a node."""
    if what is What.NODE:
        found = ask(name, "explain-node", cluster=cluster, node=called)
    else:
        pod = called if "/" in called else f"default/{called}"
        found = ask(name, "explain-pod", cluster=cluster, pod=pod)
    if output is not Output.TABLE:
        show_value(found, output)
        return
    for line in (found["sentence"], *found["details"]):
        typer.echo(line)


def _show_cluster_plan(plan: Row, otherwise: str) -> None:
    """What the controller writes next, as ``moxwell plan`` prints it."""
    from moxwell.plan.report import DocumentPlan, change_lines

    found = msgspec.convert(plan, DocumentPlan)
    lines = list(change_lines(found.objects, found.groups, found.machines))
    typer.echo("next: " + (otherwise if not lines else ""))
    for line in (*lines, *(f"note: {note}" for note in found.notes)):
        typer.echo(line)
    typer.echo("")


def next_without_writes(conditions: Sequence[Row]) -> str:
    """What a controller that has nothing to write does next."""
    unmet = [row["condition"] for row in conditions if row["status"] != "True"]
    waits = [each for each in unmet if each != "Ready"] or unmet
    return f"wait for {' and '.join(waits)}" if waits else "nothing"


async def _cluster(name: str, namespace: str, called: str) -> Row:
    async with connect.kube(name) as kube:
        app = await kube.find(Kubernetes, called, namespace)
        if app is None:
            every = (await kube.list(Kubernetes)).items
            raise Missing(where_else("cluster", called, namespace, every))
        labels = {"cluster.x-k8s.io/cluster-name": called}
        machines = (await kube.list(ProxmoxMachine, namespace, labels=labels)).items
    return {
        "state": state_of(app.status.conditions),
        "conditions": [condition_row(c) for c in app.status.conditions],
        "machines": [_row(m) for m in machines],
    }


async def _machine(name: str, namespace: str, called: str) -> Row:
    async with connect.kube(name) as kube:
        guest = await _find(kube, namespace, called)
    return {
        "state": state_of(guest.status.conditions),
        "next": guest.status.next_move,
        "conditions": [condition_row(c) for c in guest.status.conditions],
    }


async def _find(kube: Kube, namespace: str, called: str) -> ProxmoxMachine:
    """By the name of the Machine or of the ProxmoxMachine, which are mostly equal."""
    machine = await kube.find(Machine, called, namespace)
    ref = machine.spec.infrastructure_ref if machine else None
    guest = await kube.find(ProxmoxMachine, ref.name if ref else called, namespace)
    if guest is None:
        every = (await kube.list(ProxmoxMachine)).items
        raise Missing(where_else("machine", called, namespace, every))
    return guest


def where_else(what: str, called: str, namespace: str, every: Iterable[Object]) -> str:
    """The message for an object that does not exist, with the namespaces of its namesakes."""
    spaces = sorted(o.namespace for o in every if o.name == called)
    hint = f"; there is one in {', '.join(spaces)}: add -n {spaces[0]}" if spaces else ""
    return f"there is no {what} {called} in {namespace}{hint}"


def _row(guest: ProxmoxMachine) -> Row:
    return {
        "machine": guest.name,
        "region": guest.spec.region,
        "host": guest.status.proxmox_node,
        "vmid": guest.spec.virtual_machine_id,
        "state": state_of(guest.status.conditions),
        "next": guest.status.next_move,
    }


def state_of(conditions: tuple[Condition, ...]) -> str:
    """What the condition Ready says, as one line."""
    ready = next((c for c in conditions if c.type == "Ready"), None)
    if ready is None:
        return "no Ready condition yet"
    return "Ready" if ready.status == "True" else f"{ready.reason}: {ready.message}".rstrip(": ")


def condition_row(condition: Condition) -> Row:
    """A condition as a row."""
    return {
        "condition": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }


def _hosts(name: str, namespace: str, called: str) -> list[Row]:
    """How the scheduler judges every host for the machine, from the daemon."""
    rows = ask(name, "explain", key=f"{namespace}/{called}")["rows"]
    return [
        {"host": f"{r['region']}/{r['host']}", "verdict": r["verdict"], "because": r["because"]}
        for r in rows
    ]


def ask(name: str, action: str, seconds: int = 30, body: bytes | None = None, **query: str) -> Any:
    """The answer of one of the daemon's dashboard actions; with a body it is a POST."""
    info, key = connect.info(name), connect.state(name).dashboard_key.read_text()
    url = f"{info.dashboard}/api/do/{action}?{urllib.parse.urlencode(query)}"
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return msgspec.json.decode(answer.read())
    except urllib.error.HTTPError as error:
        raise Missing(error.read().decode().strip() or str(error)) from error
    except OSError as error:
        raise Unreachable(f"the daemon does not answer: {error}") from error
