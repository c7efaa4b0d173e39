"""
Plans manifests: what applying or deleting them changes, down to hosts and addresses. No writes.

Dry runs of the API show how the documents themselves change. For a ``Kubernetes`` or a ``Tenant``
the plan of the tenancy controller is computed from the changed document, so a plan and the
controller cannot differ.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from moxwell.api import registry
from moxwell.api.capi.core import Cluster
from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.capi.shared import DEPLOYMENT_NAME
from moxwell.api.cozystack import Kubernetes, Tenant
from moxwell.api.field_errors import InvalidFields
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachineTemplate
from moxwell.api.kinds import Resource
from moxwell.controllers.tenancy.apply_prediction import differences
from moxwell.controllers.tenancy.cluster.controller import TenantClusterReconciler
from moxwell.controllers.tenancy.cluster.diff import (
    NodeGroupChange,
    ObjectName,
    name_of,
    node_group_change,
)
from moxwell.controllers.tenancy.cluster.plan import ObservedTenantCluster, TenantClusterPlan
from moxwell.controllers.tenancy.cluster.quotas import needs
from moxwell.controllers.tenancy.cluster.see import defaults_in
from moxwell.controllers.tenancy.cluster.validator import ClusterValidator, Planned
from moxwell.controllers.tenancy.tenant import plan as tenants
from moxwell.controllers.tenancy.tenant.controller import TenantReconciler
from moxwell.controllers.tenancy.tenant.validation import tenant_errors
from moxwell.errors import Denied, Invalid, Missing, MoxwellError
from moxwell.kube import served_kinds
from moxwell.kube.client import Kube
from moxwell.plan.consequences import Consequences, convert, document_plan
from moxwell.plan.deletion_plan import DeletionPlanner
from moxwell.plan.placement import DesiredGroup, PlacementPreview
from moxwell.plan.report import DocumentPlan, MachineChange, ManifestPlan
from moxwell.plan.tenant_changes import tenant_changes
from moxwell.plan.warnings import network_warnings, spread_warnings
from moxwell.runtime.key import Key
from moxwell.scheduling.known_infrastructure import KnownInfrastructure
from moxwell.scheduling.quota import Amounts

Json = dict[str, Any]
CLI = "moxwell-cli"  # the field manager of moxwell apply


@dataclass(slots=True)
class _Run:
    """One plan: the hosts as they fill up, and what its documents are about to create."""

    preview: PlacementPreview
    namespaces: dict[str, Json] = field(default_factory=dict)  # metadata, by name
    clusters: dict[tuple[str, str], Amounts] = field(default_factory=dict)

    @property
    def planned(self) -> Planned:
        return Planned(self.namespaces, self.clusters)


class ManifestPlanner:
    """Plans manifests against one API; ``placement`` returns a preview for each plan."""

    def __init__(
        self,
        kube: Kube,
        clusters: TenantClusterReconciler,
        placement: Callable[[], PlacementPreview],
        *,
        tenants: TenantReconciler | None = None,
        validator: ClusterValidator | None = None,
    ) -> None:
        """Without ``tenants`` and ``validator`` tenants and refusals are not planned."""
        self._kube, self._clusters, self._placement = kube, clusters, placement
        self._tenants, self._validator = tenants, validator

    async def plan(self, documents: Sequence[Json], *, delete: bool = False) -> ManifestPlan:
        """What applying, or deleting, the documents changes."""
        served = await self._kube.discover()
        run = _Run(self._placement())
        parts = []
        for doc in documents:
            plan_one = self._delete if delete else self._document
            parts.append(await plan_one(doc, served_kinds.of_object(served, doc), run))
        return ManifestPlan(tuple(parts))

    async def _delete(self, doc: Json, resource: Resource, run: _Run) -> DocumentPlan:
        planner = DeletionPlanner(self._kube, self._clusters, run.preview.regions, self._tenants)
        return await planner.plan(resource, *_named(doc, resource))

    async def plan_cluster(self, key: Key) -> DocumentPlan:
        """What the controller does next for an existing tenant cluster, for ``moxwell explain``."""
        app = await self._kube.get(Kubernetes, key.name, key.namespace)
        found = await self._cluster(app, _Run(self._placement()))
        return document_plan("none", "Kubernetes", (key.name, key.namespace), found)

    async def _document(self, doc: Json, resource: Resource, run: _Run) -> DocumentPlan:
        name, namespace = _named(doc, resource)
        if unknown := registry.field_errors(doc):
            raise InvalidFields(unknown)
        before = await self._kube.find(resource, name, namespace)
        after, notes = await self._dry_run(doc, resource, namespace, run)
        fields = differences(before, after) if before is not None else ()
        found = await self._consequences(resource.kind, before, after, run)
        plan = document_plan(
            "create" if before is None else "update" if fields else "none",
            resource.kind,
            (name, namespace),
            found,
        )
        return replace(plan, fields=fields, notes=notes + plan.notes)

    async def _dry_run(
        self, doc: Json, resource: Resource, namespace: str, run: _Run
    ) -> tuple[Json, tuple[str, ...]]:
        """
        The object after the apply.

        The plan may create its namespace, or change the quota there: then the API cannot judge the
        object yet, and ``_check`` does.
        """
        strict, planned = self._kube.with_strict_fields(), namespace in run.namespaces
        try:
            after = await strict.apply(doc, resource, manager=CLI, force=True, dry_run=True)
        except Missing as error:
            return doc, () if planned else (str(error),)
        except Denied:
            if not planned or resource.kind != "Kubernetes" or self._validator is None:
                raise
            return doc, ()
        return after, ()

    async def _consequences(
        self, kind: str, before: Json | None, after: Json, run: _Run
    ) -> Consequences:
        match kind:
            case "Namespace":
                run.namespaces[after["metadata"]["name"]] = after["metadata"]
            case "Kubernetes":
                app = convert(after, Kubernetes)
                self._check(app, convert(before, Kubernetes) if before else None, run)
                return await self._cluster(app, run)
            case "Tenant":
                old = convert(before, Tenant) if before else None
                return await self._tenant(convert(after, Tenant), old, run)
            case "MachineDeployment":
                namespace = after["metadata"]["namespace"]
                sets = (await self._kube.list(MachineSet, namespace)).items
                change = node_group_change(after["metadata"]["name"], before, after, sets)
                cluster = await self._proxmox_cluster(after)
                return await self._change_groups(run.preview, [(change, after)], {}, cluster)
        return Consequences()

    def _check(self, app: Kubernetes, old: Kubernetes | None, run: _Run) -> None:
        """Refuse what admission refuses, also in a namespace that does not exist yet."""
        if self._validator is None or (old is not None and old.spec == app.spec):
            return
        if errors := self._validator.errors(app, old, run.planned):
            raise InvalidFields(errors)
        run.clusters[app.namespace, app.name] = needs(app)

    # Tenants and their clusters

    async def _tenant(self, tenant: Tenant, old: Tenant | None, run: _Run) -> Consequences:
        """Its objects, and its clusters with the firewall group and the bridge they get."""
        known = self._validator.known if self._validator else KnownInfrastructure()
        if errors := tenant_errors(tenant, old, known):
            raise InvalidFields(errors)
        objects = tenants.desired_objects(tenant, ())
        namespace = next(o for o in objects if o["kind"] == "Namespace")["metadata"]
        run.namespaces[namespace["name"]] = namespace
        found = await self._tenant_objects(tenant)
        for app in (await self._kube.list(Kubernetes, namespace["name"])).items:
            if not app.deleting:
                found += await self._cluster(app, run)
        return found

    async def _tenant_objects(self, tenant: Tenant) -> Consequences:
        """What the controller of the tenant writes next, in Proxmox and in Kubernetes."""
        if self._tenants is None:
            return Consequences()
        seen = await self._tenants.see(tenant, self._kube)
        move = self._tenants.plan(tenant, seen)
        if not isinstance(move, tenants.TenantChanges):
            return Consequences()
        return Consequences(objects=tuple(tenant_changes(move, seen)))

    async def _cluster(self, app: Kubernetes, run: _Run) -> Consequences:
        """The plan of the controller, and where the machines of its groups are placed."""
        seen = await self._clusters.see(app, self._kube)
        before, namespace = seen.defaults, run.namespaces.get(app.namespace)
        if namespace is not None:
            seen = replace(seen, defaults=defaults_in(namespace, before))
        plan = self._clusters.plan(app, seen)
        if not isinstance(plan, TenantClusterPlan):
            return Consequences()
        placed = await self._place(app, seen, plan, run.preview)
        network = (before.firewall_group, before.bridge)
        notes = list(spread_warnings(plan.groups, placed.machines))
        if network != (seen.defaults.firewall_group, seen.defaults.bridge):
            notes += network_warnings(app.name, plan.groups, before, seen.defaults)
            notes += self._quota_notes(app, plan, run)
        notes += placed.notes
        return replace(placed, objects=plan.changes, groups=plan.groups, notes=tuple(notes))

    def _quota_notes(self, app: Kubernetes, plan: TenantClusterPlan, run: _Run) -> tuple[str, ...]:
        """A rollout that admission does not see, because the cluster itself is unchanged."""
        rolling = [group.name for group in plan.groups if group.rolls and group.deleted]
        note = self._validator.rollout_note(app, rolling, run.planned) if self._validator else ""
        return (note,) if note else ()

    async def _place(
        self,
        app: Kubernetes,
        seen: ObservedTenantCluster,
        plan: TenantClusterPlan,
        preview: PlacementPreview,
    ) -> Consequences:
        objects = {name_of(obj): obj for obj in plan.objects}
        cluster = objects.get(("ProxmoxCluster", app.name))
        existing = {d.name: d for d in seen.deployments}
        made = frozenset({seen.defaults.firewall_group} - {""})
        found = Consequences()
        for change in plan.groups:
            tree = objects.get(("MachineDeployment", change.name))
            if tree is None:
                machines = await preview.delete_group(existing[change.name])
                found += Consequences(machines=tuple(machines))
            else:
                found += await self._change_groups(
                    preview, [(change, tree)], objects, cluster, made
                )
        return found

    async def _change_groups(
        self,
        preview: PlacementPreview,
        groups: Iterable[tuple[NodeGroupChange, Json]],
        objects: Mapping[ObjectName, Json],
        cluster: Json | None,
        made: frozenset[str] = frozenset(),
    ) -> Consequences:
        """``made`` are the security groups that exist before the machines do."""
        found = Consequences()
        for change, tree in groups:
            machines: list[MachineChange] = []
            notes: tuple[str, ...] = ()
            try:
                if group := await self._desired_group(change, tree, objects, cluster):
                    group = replace(group, firewall_groups=made)
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
        deployment = convert(tree, MachineDeployment)
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
            template=convert(template, ProxmoxMachineTemplate),
            cluster=convert(cluster, ProxmoxCluster),
            sets=tuple(sets),
        )

    async def _proxmox_cluster(self, deployment: Json) -> Json | None:
        namespace = deployment["metadata"]["namespace"]
        cluster = await self._kube.find(Cluster, deployment["spec"]["clusterName"], namespace)
        ref = cluster.spec.infrastructure_ref if cluster else None
        if ref is None or ref.kind != "ProxmoxCluster":
            return None
        return await self._kube.find(ProxmoxCluster.resource, ref.name, namespace)


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
