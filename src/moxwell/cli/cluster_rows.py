"""The rows that ``status`` and ``cluster list`` print for clusters."""

from typing import Any

from moxwell.api.capi.core import Machine
from moxwell.api.cozystack import Kubernetes
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.cli import connect
from moxwell.kube.client import Kube

Row = dict[str, Any]


async def clusters(name: str, namespace: str = "") -> list[Row]:
    """One row for each cluster of an instance, or of one namespace."""
    async with connect.kube(name) as kube:
        apps = (await kube.list(Kubernetes, namespace)).items
        return [await row(kube, app) for app in apps]


async def row(kube: Kube, app: Kubernetes) -> Row:
    """The row of one cluster."""
    labels = {"cluster.x-k8s.io/cluster-name": app.name}
    guests = (await kube.list(ProxmoxMachine, app.namespace, labels=labels)).items
    machines = (await kube.list(Machine, app.namespace, labels=labels)).items
    ready = next((c for c in app.status.conditions if c.type == "Ready"), None)
    state = "Ready" if ready and ready.status == "True" else (ready.message if ready else "")
    regions = sorted({g.spec.region for g in guests if g.spec.region})
    return {
        "namespace": app.namespace,
        "cluster": app.name,
        "version": app.status.version or app.spec.version,
        "nodes": f"{app.status.ready_replicas}/{len(machines)}",
        "regions": regions,
        "state": state or app.status.phase or "Pending",
        "endpoint": app.status.endpoint,
    }
