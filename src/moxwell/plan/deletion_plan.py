"""
What the deletion of an object deletes with it, down to guests, disks and addresses. Reads only.

The plan of a cluster's controller lists its objects. The namespace of a tenant takes its clusters
with it, and the tenants below it.
"""

from typing import Any

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.capi.shared import CLUSTER_NAME, DEPLOYMENT_NAME
from moxwell.api.cozystack import Kubernetes, Tenant
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.kamaji import TenantControlPlane
from moxwell.api.kinds import Resource
from moxwell.controllers.tenancy.cluster.controller import TenantClusterReconciler
from moxwell.controllers.tenancy.cluster.diff import ObjectChange, node_group_change
from moxwell.controllers.tenancy.cluster.plan import TenantClusterPlan
from moxwell.controllers.tenancy.tenant import firewall
from moxwell.controllers.tenancy.tenant.controller import TenantReconciler
from moxwell.controllers.tenancy.tenant.plan import namespace_of
from moxwell.kube.client import Kube
from moxwell.plan.consequences import Consequences, as_deleted, convert, document_plan
from moxwell.plan.deleted_guests import deleted_guest
from moxwell.plan.report import DocumentPlan, MachineChange
from moxwell.pve.regions import Regions

Json = dict[str, Any]
SECRETS = Resource("", "v1", "secrets", "Secret")


class DeletionPlanner:
    """Plans deletions; without ``tenants`` no security groups are read."""

    def __init__(
        self,
        kube: Kube,
        clusters: TenantClusterReconciler,
        regions: Regions,
        tenants: TenantReconciler | None = None,
    ) -> None:
        self._kube, self._clusters, self._regions = kube, clusters, regions
        self._tenants = tenants

    async def plan(self, resource: Resource, name: str, namespace: str) -> DocumentPlan:
        """What is deleted together with an object."""
        found = await self._kube.find(resource, name, namespace)
        identity = (name, namespace)
        if found is None:
            missing = Consequences(notes=(f"{resource.kind} {name} does not exist",))
            return document_plan("none", resource.kind, identity, missing)
        deleted = await self._consequences(resource.kind, found)
        return document_plan("delete", resource.kind, identity, deleted)

    async def _consequences(self, kind: str, found: Json) -> Consequences:
        namespace = found["metadata"].get("namespace", "")
        match kind:
            case "Kubernetes":
                return await self._cluster(found)
            case "Tenant":
                return await self._tenant(found)
            case "Namespace":
                return await self._contents(found["metadata"]["name"])
            case "Cluster":
                name = convert(found, Cluster).name
                return Consequences(machines=await self._guests(namespace, {CLUSTER_NAME: name}))
            case "MachineDeployment":
                return await self._group(convert(found, MachineDeployment))
            case "ProxmoxMachine":
                machine = convert(found, ProxmoxMachine)
                return Consequences(machines=(await self._guest(machine, machine.name),))
        return Consequences()

    async def _cluster(self, tree: Json) -> Consequences:
        app = as_deleted(tree, Kubernetes)
        plan = self._clusters.plan(app, await self._clusters.see(app, self._kube))
        if not isinstance(plan, TenantClusterPlan):
            return Consequences()
        labels = {CLUSTER_NAME: app.name}
        machines = await self._guests(app.namespace, labels)
        objects = (*plan.changes, *await self._others(app, f"Cluster {app.name}"))
        return Consequences(objects, plan.groups, machines, tuple(_kept(machines)))

    async def _others(self, app: Kubernetes, waits_for: str) -> list[ObjectChange]:
        """Objects that others delete with the cluster: its Secrets, its control plane."""
        found: list[tuple[str, str]] = []
        if await self._kube.find(TenantControlPlane, app.name, app.namespace) is not None:
            found.append(("TenantControlPlane", app.name))
        page = await self._kube.list(SECRETS, app.namespace, labels={CLUSTER_NAME: app.name})
        found += [("Secret", item["metadata"]["name"]) for item in page.items]
        return [ObjectChange("delete", kind, name, (), waits_for) for kind, name in found]

    async def _group(self, deployment: MachineDeployment) -> Consequences:
        sets = (await self._kube.list(MachineSet, deployment.namespace)).items
        change = node_group_change(deployment.name, None, None, sets)
        labels = {DEPLOYMENT_NAME: deployment.name}
        machines = await self._guests(deployment.namespace, labels)
        return Consequences((), (change,), machines, tuple(_kept(machines)))

    async def _tenant(self, tree: Json) -> Consequences:
        tenant = as_deleted(tree, Tenant)
        name = namespace_of(tenant)
        objects = [ObjectChange("delete", "Namespace", name)]
        if self._tenants is not None:
            seen = await self._tenants.see(tenant, self._kube)
            objects += [
                ObjectChange("delete", o["kind"], o["metadata"]["name"], (), f"Namespace {name}")
                for o in seen.objects
                if o["kind"] != "Namespace"
            ]
            objects += [
                ObjectChange(
                    "delete", "SecurityGroup", f"{f.region}/{f.group.group}", (), "its nodes"
                )
                for f in seen.firewalls or ()
                if f.group is not None and firewall.is_owned(f.group, name)
            ]
        return Consequences(objects=tuple(objects)) + await self._contents(name)

    async def _contents(self, namespace: str) -> Consequences:
        """Everything that is deleted with a namespace: clusters, then tenants below it."""
        found = Consequences()
        for app in (await self._kube.list(Kubernetes.resource, namespace)).items:
            own = ObjectChange("delete", "Kubernetes", app["metadata"]["name"])
            found += Consequences(objects=(own,)) + await self._cluster(app)
        for tenant in (await self._kube.list(Tenant.resource, namespace)).items:
            own = ObjectChange("delete", "Tenant", tenant["metadata"]["name"])
            found += Consequences(objects=(own,)) + await self._tenant(tenant)
        return found

    async def _guests(self, namespace: str, labels: dict[str, str]) -> tuple[MachineChange, ...]:
        machines = (await self._kube.list(Machine, namespace, labels=labels)).items
        groups = {m.name: m.metadata.labels.get(DEPLOYMENT_NAME, m.name) for m in machines}
        found = (await self._kube.list(ProxmoxMachine, namespace, labels=labels)).items
        return tuple(
            [
                await self._guest(guest, groups.get(guest.name, guest.name))
                for guest in sorted(found, key=lambda g: g.name)
            ]
        )

    async def _guest(self, machine: ProxmoxMachine, group: str) -> MachineChange:
        return await deleted_guest(self._kube, self._regions, machine, group)


def _kept(machines: tuple[MachineChange, ...]) -> list[str]:
    return [
        f"{disk} is attached to {machine.name} and belongs to a volume: it is not deleted"
        for machine in machines
        for disk in machine.kept
    ]
