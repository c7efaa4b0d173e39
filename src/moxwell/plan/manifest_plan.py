"""
Plan manifests: what applying or deleting them changes, down to hosts and addresses. No writes.

Dry runs of the API tell how the documents themselves change. For a ``Kubernetes`` or a ``Tenant``
the plan of the tenancy controller is computed from the changed document, so a plan and the
controller cannot differ.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from moxwell.api.capi.core import Cluster
from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.capi.shared import DEPLOYMENT_NAME
from moxwell.api.cozystack import Kubernetes, Tenant
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachineTemplate
from moxwell.api.kinds import Resource
from moxwell.controllers.tenancy.apply_prediction import differences
from moxwell.controllers.tenancy.cluster.controller import TenantClusterReconciler
from moxwell.controllers.tenancy.cluster.diff import (
    NodeGroupChange,
    ObjectChange,
    ObjectName,
    name_of,
    node_group_change,
)
from moxwell.controllers.tenancy.cluster.plan import ObservedTenantCluster, TenantClusterPlan
from moxwell.controllers.tenancy.cluster.see import defaults_in
from moxwell.controllers.tenancy.tenant import plan as tenants
from moxwell.errors import Invalid, Missing, MoxwellError
from moxwell.kube.client import Kube
from moxwell.plan.placement import DesiredGroup, PlacementPreview
from moxwell.plan.report import DocumentPlan, MachineChange, ManifestPlan
from moxwell.runtime.key import Key

Json = dict[str, Any]
CLI = "moxwell-cli"  # the field manager of moxwell apply


@dataclass(frozen=True, slots=True)
class Consequences:
    """What follows from a document beyond itself."""

    objects: tuple[ObjectChange, ...] = ()
    groups: tuple[NodeGroupChange, ...] = ()
    machines: tuple[MachineChange, ...] = ()
    notes: tuple[str, ...] = ()

    def __add__(self, other: "Consequences") -> "Consequences":
        return Consequences(
            self.objects + other.objects,
            self.groups + other.groups,
            self.machines + other.machines,
            self.notes + other.notes,
        )


class ManifestPlanner:
    """Plans manifests against one API; ``placement`` returns a preview for each plan."""

    def __init__(
        self,
        kube: Kube,
        clusters: TenantClusterReconciler,
        placement: Callable[[], PlacementPreview],
    ) -> None:
        self._kube, self._clusters, self._placement = kube, clusters, placement

    async def plan(self, documents: Sequence[Json], *, delete: bool = False) -> ManifestPlan:
        """What applying, or deleting, the documents changes."""
        served = {(s.resource.api_version, s.resource.kind): s for s in await self._kube.discover()}
        parts = []
        for doc in documents:
            found = served.get((str(doc.get("apiVersion")), str(doc.get("kind"))))
            if found is None:
                raise Invalid(f"{doc.get('apiVersion')} {doc.get('kind')} is not served here")
            plan = self._deletion if delete else self._document
            parts.append(await plan(doc, found.resource))
        return ManifestPlan(tuple(parts))

    async def plan_cluster(self, key: Key) -> DocumentPlan:
        """What the controller does next for an existing tenant cluster, for ``moxwell explain``."""
        app = await self._kube.get(Kubernetes, key.name, key.namespace)
        found = await self._cluster(app)
        return _document_plan("none", "Kubernetes", (key.name, key.namespace), found)

    async def _document(self, doc: Json, resource: Resource) -> DocumentPlan:
        name, namespace = _named(doc, resource)
        before = await self._kube.find(resource, name, namespace)
        notes: tuple[str, ...] = ()
        try:
            after = await self._kube.apply(doc, resource, manager=CLI, force=True, dry_run=True)
        except Missing as error:  # the namespace does not exist yet
            after, notes = doc, (str(error),)
        fields = differences(before, after) if before is not None else ()
        found = await self._consequences(resource.kind, before, after)
        plan = _document_plan(
            "create" if before is None else "update" if fields else "none",
            resource.kind,
            (name, namespace),
            found,
        )
        return replace(plan, fields=fields, notes=notes + plan.notes)

    async def _consequences(self, kind: str, before: Json | None, after: Json) -> Consequences:
        if kind == "Kubernetes":
            return await self._cluster(_convert(after, Kubernetes))
        if kind == "Tenant":
            return await self._tenant(_convert(after, Tenant))
        if kind == "MachineDeployment":
            namespace = after["metadata"]["namespace"]
            sets = (await self._kube.list(MachineSet, namespace)).items
            change = node_group_change(after["metadata"]["name"], before, after, sets)
            cluster = await self._proxmox_cluster(after)
            return await self._change_groups(self._placement(), [(change, after)], {}, cluster)
        return Consequences()

    async def _deletion(self, doc: Json, resource: Resource) -> DocumentPlan:
        """What is deleted together with an object."""
        name, namespace = _named(doc, resource)
        found = await self._kube.find(resource, name, namespace)
        identity = (name, namespace)
        if found is None:
            missing = Consequences(notes=(f"{resource.kind} {name} does not exist",))
            return _document_plan("none", resource.kind, identity, missing)
        deleted = Consequences()
        if resource.kind == "MachineDeployment":
            deleted = await self._delete_group(_convert(found, MachineDeployment))
        if resource.kind == "Kubernetes":
            deleted = await self._cluster(_as_deleted(found))
        return _document_plan("delete", resource.kind, identity, deleted)

    async def _delete_group(self, deployment: MachineDeployment) -> Consequences:
        sets = (await self._kube.list(MachineSet, deployment.namespace)).items
        change = node_group_change(deployment.name, None, None, sets)
        machines = await self._placement().delete_group(deployment)
        return Consequences(groups=(change,), machines=tuple(machines))

    # Tenants and their clusters

    async def _tenant(self, tenant: Tenant) -> Consequences:
        """Its clusters, with the firewall group and the bridge that the tenant gives them."""
        objects = tenants.desired_objects(tenant, ())
        namespace = next(o for o in objects if o["kind"] == "Namespace")["metadata"]
        found = Consequences()
        for app in (await self._kube.list(Kubernetes, namespace["name"])).items:
            if not app.deleting:
                found += await self._cluster(app, namespace)
        return found

    async def _cluster(self, app: Kubernetes, namespace: Json | None = None) -> Consequences:
        """The plan of the controller, and where the machines of its groups are placed."""
        seen = await self._clusters.see(app, self._kube)
        if namespace is not None:
            seen = replace(seen, defaults=defaults_in(namespace, seen.defaults))
        plan = self._clusters.plan(app, seen)
        if not isinstance(plan, TenantClusterPlan):
            return Consequences()
        placed = await self._place(app, seen, plan)
        return replace(placed, objects=plan.changes, groups=plan.groups)

    async def _place(
        self, app: Kubernetes, seen: ObservedTenantCluster, plan: TenantClusterPlan
    ) -> Consequences:
        objects = {name_of(obj): obj for obj in plan.objects}
        cluster = objects.get(("ProxmoxCluster", app.name))
        existing = {d.name: d for d in seen.deployments}
        preview, found = self._placement(), Consequences()
        for change in plan.groups:
            tree = objects.get(("MachineDeployment", change.name))
            if tree is None:
                machines = await preview.delete_group(existing[change.name])
                found += Consequences(machines=tuple(machines))
            else:
                found += await self._change_groups(preview, [(change, tree)], objects, cluster)
        return found

    async def _change_groups(
        self,
        preview: PlacementPreview,
        groups: Iterable[tuple[NodeGroupChange, Json]],
        objects: Mapping[ObjectName, Json],
        cluster: Json | None,
    ) -> Consequences:
        found = Consequences()
        for change, tree in groups:
            machines: list[MachineChange] = []
            notes: tuple[str, ...] = ()
            try:
                if group := await self._desired_group(change, tree, objects, cluster):
                    machines = await preview.change_group(group)
            except MoxwellError as error:
                notes = (f"{change.name}: {error}",)
            found += Consequences(groups=(change,), machines=tuple(machines), notes=notes)
        return found

    async def _desired_group(
        self,
        change: NodeGroupChange,
        tree: Json,
        objects: Mapping[ObjectName, Json],
        cluster: Json | None,
    ) -> DesiredGroup | None:
        """None: no machine of the group changes, or its machines are not on Proxmox."""
        if cluster is None or not (change.created or change.deleted):
            return None
        deployment = _convert(tree, MachineDeployment)
        ref = deployment.spec.template.spec.infrastructure_ref
        if ref is None or ref.kind != "ProxmoxMachineTemplate":
            return None
        template = objects.get((ref.kind, ref.name)) or await self._kube.get(
            ProxmoxMachineTemplate.resource, ref.name, deployment.namespace
        )
        labels = {DEPLOYMENT_NAME: deployment.name}
        sets = (await self._kube.list(MachineSet, deployment.namespace, labels=labels)).items
        return DesiredGroup(
            change=change,
            deployment=deployment,
            template=_convert(template, ProxmoxMachineTemplate),
            cluster=_convert(cluster, ProxmoxCluster),
            sets=tuple(sets),
        )

    async def _proxmox_cluster(self, deployment: Json) -> Json | None:
        namespace = deployment["metadata"]["namespace"]
        cluster = await self._kube.find(Cluster, deployment["spec"]["clusterName"], namespace)
        ref = cluster.spec.infrastructure_ref if cluster else None
        if ref is None or ref.kind != "ProxmoxCluster":
            return None
        return await self._kube.find(ProxmoxCluster.resource, ref.name, namespace)


def _document_plan(
    action: Any, kind: str, identity: tuple[str, str], found: Consequences
) -> DocumentPlan:
    name, namespace = identity
    return DocumentPlan(
        kind=kind,
        name=name,
        namespace=namespace,
        action=action,
        notes=found.notes,
        objects=found.objects,
        groups=found.groups,
        machines=found.machines,
    )


def _convert(tree: Json, kind: Any) -> Any:
    return msgspec.convert(tree, kind, strict=False)


def _as_deleted(tree: Json) -> Any:
    """The object as if it were being deleted."""
    meta = {"deletionTimestamp": "1970-01-01T00:00:00Z", **tree["metadata"]}
    return _convert({**tree, "metadata": meta}, Kubernetes)


def _named(doc: Json, resource: Resource) -> tuple[str, str]:
    """Name and namespace; the namespace defaults to ``default`` for namespaced kinds only."""
    meta = doc.setdefault("metadata", {})
    if resource.namespaced:
        meta.setdefault("namespace", "default")
    else:
        meta.pop("namespace", None)
    name = str(meta.get("name", ""))
    if not name:
        raise Invalid(f"a {resource.kind} in the file has no metadata.name")
    return name, str(meta.get("namespace", ""))
