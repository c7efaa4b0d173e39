"""``moxwell cluster describe``: everything about one tenant cluster on one screen."""

from typing import Any

import typer

from moxwell.api.capi.core import Machine
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.cli import cluster, connect, events, node_groups, status, waiting
from moxwell.cli.connect import DEFAULT_NAME, Format, Name, Namespace
from moxwell.cli.demo import NAMESPACES
from moxwell.cli.explain import ask, condition_row, state_of
from moxwell.cli.output import Output, show, show_value
from moxwell.clock import SystemClock
from moxwell.kube.client import Kube
from moxwell.scheduling import quota

Json = dict[str, Any]
SHOWN_EVENTS = 10
MACHINES = ("machine", "phase", "region", "host", "vmid", "address", "version")
CONDITIONS = ("condition", "status", "reason", "message")


def describe(
    called: cluster.ClusterName,
    namespace: Namespace = cluster.DEFAULT_NAMESPACE,
    name: Name = DEFAULT_NAME,
    output: Format = Output.TABLE,
) -> None:
    """Print a cluster with its node groups, machines, conditions and last events."""

    async def run() -> Json:
        async with connect.kube(name) as kube:
            return await read(kube, called, namespace)

    found = waiting.run(run())
    lost = [r for r in ask(name, "regions")["rows"] if r["name"] in found["regions"]]
    found["unreachable"] = list(status.lost_lines(lost))
    if output is not Output.TABLE:
        show_value(found, output)
        return
    for line in found["unreachable"]:
        typer.secho(line, bold=True)
    for label in ("cluster", "namespace", "version", "endpoint", "regions", "quota", "state"):
        value = found[label]
        text = ", ".join(value) if isinstance(value, list) else value
        typer.echo(f"{label:<10} {text or '-'}")
    for title, columns in (
        ("groups", node_groups.COLUMNS),
        ("machines", MACHINES),
        ("conditions", CONDITIONS),
        ("events", events.COLUMNS),
    ):
        if found[title]:
            typer.echo("")
            show(found[title], columns, output)


async def read(kube: Kube, called: str, namespace: str) -> Json:
    """Everything that is printed, as values."""
    app = await cluster.get(kube, called, namespace)
    labels = {"cluster.x-k8s.io/cluster-name": called}
    machines = (await kube.list(Machine, namespace, labels=labels)).items
    guests = {g.name: g for g in (await kube.list(ProxmoxMachine, namespace, labels=labels)).items}
    names = {called, *(m.name for m in machines), *guests}
    every = events.ordered((await kube.list(events.EVENTS, namespace)).items)
    own = [e for e in every if e["involvedObject"].get("name") in names]
    now = SystemClock().now()
    return {
        "cluster": app.name,
        "namespace": app.namespace,
        "version": app.status.version or app.spec.version,
        "endpoint": app.status.endpoint,
        "regions": sorted({g.spec.region for g in guests.values() if g.spec.region}),
        "quota": await _quota(kube, namespace),
        "state": state_of(app.status.conditions),
        "groups": node_groups.rows(app),
        "machines": [_machine(m, guests.get(_guest_name(m))) for m in machines],
        "conditions": [condition_row(c) for c in app.status.conditions],
        "events": [events.row(e, now) for e in own[-SHOWN_EVENTS:]],
    }


async def _quota(kube: Kube, namespace: str) -> list[str]:
    """What the machines of the tenant use of its quota."""
    space = await kube.find(NAMESPACES, namespace)
    limits = quota.read_annotation((space or {}).get("metadata") or {})
    guests = (await kube.list(ProxmoxMachine)).items if limits else []
    used = (
        quota.machine_amounts(g.spec) for g in guests if quota.belongs_to(g.namespace, namespace)
    )
    return quota.usage_of_machines(limits, quota.total(used))


def _guest_name(machine: Machine) -> str:
    ref = machine.spec.infrastructure_ref
    return ref.name if ref else machine.name


def _machine(machine: Machine, guest: ProxmoxMachine | None) -> Json:
    addresses = [a.address for a in machine.status.addresses if a.type != "Hostname"]
    return {
        "machine": machine.name,
        "phase": machine.status.phase,
        "region": guest.spec.region if guest else "",
        "host": guest.status.proxmox_node if guest else "",
        "vmid": guest.spec.virtual_machine_id if guest else None,
        "address": addresses[0] if addresses else "",
        "version": machine.spec.version,
    }
