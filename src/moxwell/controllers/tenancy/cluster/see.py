"""What there is of a tenant cluster, read from the management API."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from moxwell.api.capi.bootstrap import KubeadmConfigTemplate
from moxwell.api.capi.controlplane import KamajiControlPlane
from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.machinesets import MachineDeployment, MachineHealthCheck, MachineSet
from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.cozystack import Kubernetes
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineTemplate
from moxwell.api.kinds import Resource
from moxwell.controllers.tenancy.annotations import BRIDGE, OWNER, WALL
from moxwell.controllers.tenancy.cluster.defaults import Defaults
from moxwell.controllers.tenancy.cluster.naming import MANAGED
from moxwell.controllers.tenancy.cluster.plan import Seen
from moxwell.kube.client import Kube

Json = dict[str, Any]
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
MADE = (MachineDeployment, MachineHealthCheck, ProxmoxMachineTemplate, KubeadmConfigTemplate)
RESOURCES: Mapping[str, Resource] = {
    kind.resource.kind: kind.resource
    for kind in (*MADE, Cluster, KamajiControlPlane, ProxmoxCluster)
}


async def surroundings(kube: Kube, namespace: str, defaults: Defaults) -> Defaults:
    """What holds for clusters of a namespace: what its tenant was given."""
    found = await kube.find(NAMESPACES, namespace)
    return within((found or {}).get("metadata") or {}, defaults)


def within(meta: Json, defaults: Defaults) -> Defaults:
    """What holds in a namespace that is so."""
    notes = meta.get("annotations") or {}
    return replace(
        defaults,
        tenant=(meta.get("labels") or {}).get(OWNER, ""),
        firewall_group=notes.get(WALL, ""),
        bridge=notes.get(BRIDGE, ""),
    )


async def see(kube: Kube, app: Kubernetes) -> Seen:
    """Everything the plan asks about."""
    space, labels = app.namespace, {CLUSTER_NAME: app.name}
    ours: list[Json] = []
    for kind in MADE:
        page = await kube.list(kind.resource, space, labels={**labels, **MANAGED})
        head = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
        ours += [{**obj, **head} for obj in page.items]
    deployments = await kube.list(MachineDeployment, space, labels=labels)
    machines = await kube.list(Machine, space, labels=labels)
    guests = await kube.list(ProxmoxMachine, space, labels=labels)
    sets = await kube.list(MachineSet, space, labels=labels)
    return Seen(
        cluster=await kube.find(Cluster, app.name, space),
        plane=await kube.find(KamajiControlPlane, app.name, space),
        deployments=tuple(deployments.items),
        sets=tuple(sets.items),
        ours=tuple(ours),
        machines=tuple(machines.items),
        guests=tuple(guests.items),
    )
