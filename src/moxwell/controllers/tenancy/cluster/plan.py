"""
What is to be written for a tenant cluster, in which order, and what waits. Pure.

``plan_cluster`` returns one ``TenantClusterPlan``: the controller executes its ``writes``;
``moxwell plan``, ``moxwell explain`` and the dashboard print its ``changes`` and ``groups``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from moxwell.api.capi.bootstrap import KubeadmConfigTemplate
from moxwell.api.capi.controlplane import KamajiControlPlane
from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.machinesets import MachineDeployment, MachineHealthCheck, MachineSet
from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.capi.talos import TalosConfigTemplate
from moxwell.api.cozystack import Kubernetes
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineTemplate
from moxwell.api.kinds import Resource
from moxwell.controllers.tenancy.apply_prediction import differences, is_owner, predict_apply
from moxwell.controllers.tenancy.cluster import rollout_order
from moxwell.controllers.tenancy.cluster.autoscaling import (
    INITIAL_REPLICAS_MANAGER,
    MANAGER,
    replicas_only,
    replicas_to_hand_over,
    with_initial_replicas,
)
from moxwell.controllers.tenancy.cluster.defaults import Defaults
from moxwell.controllers.tenancy.cluster.desired_objects import stages
from moxwell.controllers.tenancy.cluster.diff import (
    NodeGroupChange,
    ObjectChange,
    ObjectName,
    name_of,
    node_group_change,
    remaining_sets,
)
from moxwell.controllers.tenancy.cluster.naming import MANAGED
from moxwell.controllers.tenancy.cluster.rollout_order import WaitingGroup
from moxwell.preflight.outcome import RegionCheck
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Apply, Create, Delete, Write

Json = dict[str, Any]
POLL_SECONDS = 5.0
TEMPLATES = ("ProxmoxMachineTemplate", "KubeadmConfigTemplate", "TalosConfigTemplate")
OPTIONAL_KINDS = (TalosConfigTemplate,)  # a management cluster may not serve them
GROUP_KINDS = (
    MachineDeployment,
    MachineHealthCheck,
    ProxmoxMachineTemplate,
    KubeadmConfigTemplate,
    *OPTIONAL_KINDS,
)
CLUSTER_KINDS = (ProxmoxCluster, KamajiControlPlane, Cluster)
RESOURCES: Mapping[str, Resource] = {
    kind.resource.kind: kind.resource for kind in (*GROUP_KINDS, *CLUSTER_KINDS)
}


class TenantClusterReason(StrEnum):
    """Reasons of a tenant cluster's conditions and events."""

    READY = "Ready"
    PROVISIONING = "Provisioning"
    WAITING = "Waiting"
    ROLLING = "Rolling"
    UP_TO_DATE = "UpToDate"
    DELETING = "Deleting"
    CHECKS_PASSED = "ChecksPassed"
    CHECKS_FAILED = "ChecksFailed"
    CREATED = "Created"  # events only


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTenantCluster:
    """The existing objects of a tenant cluster, and what its namespace and the regions provide."""

    defaults: Defaults = field(default_factory=lambda: Defaults(regions=()))
    cluster: Cluster | None = None
    control_plane: KamajiControlPlane | None = None
    deployments: tuple[MachineDeployment, ...] = ()
    machine_sets: tuple[MachineSet, ...] = ()
    machines: tuple[Machine, ...] = ()
    proxmox_machines: tuple[ProxmoxMachine, ...] = ()
    objects: tuple[Json, ...] = ()  # all that may be ours, with managed fields
    seconds_without_progress: Mapping[str, float] = field(default_factory=dict)  # by group
    checks: tuple[RegionCheck, ...] | None = None  # None: not checked

    def managed(self, app: Kubernetes) -> tuple[Json, ...]:
        """Objects of node groups that carry the labels of this cluster and of Moxwell."""
        labels = {CLUSTER_NAME: app.name, **MANAGED}
        kinds = {kind.resource.kind for kind in GROUP_KINDS}
        return tuple(
            obj
            for obj in self.objects
            if obj["kind"] in kinds
            and labels.items() <= (obj["metadata"].get("labels") or {}).items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantClusterPlan:
    """
    Everything that is to change in a tenant cluster, and the part of it that is due now.

    ``changes`` and ``groups`` assume that all rollouts complete; ``objects`` are the desired
    objects after that.
    """

    changes: tuple[ObjectChange, ...] = ()
    groups: tuple[NodeGroupChange, ...] = ()  # in the order in which they change
    waiting: tuple[WaitingGroup, ...] = ()
    writes: tuple[Write, ...] = field(default=(), repr=False)
    objects: tuple[Json, ...] = field(default=(), repr=False)
    requeue_after: float | None = None

    @property
    def due(self) -> tuple[ObjectChange, ...]:
        """The changes that are written now."""
        return tuple(change for change in self.changes if not change.waits_for)


def plan_cluster(app: Kubernetes, seen: ObservedTenantCluster) -> TenantClusterPlan | Done:
    """The plan for a ``Kubernetes`` object; ``Done`` when it is deleted and nothing is left."""
    return _plan_deletion(app, seen) if app.deleting else _Planner(app, seen).plan()


@dataclass(frozen=True, slots=True)
class _Prepared:
    """One desired object: how it differs from the existing one, and the writes for that."""

    after: Json
    change: ObjectChange | None = None
    writes: tuple[Write, ...] = ()


def _prepare(desired: Json, found: Json | None) -> _Prepared:
    kind, name = name_of(desired)
    resource = RESOURCES[kind]
    if found is None:
        first = with_initial_replicas(desired)
        write: Write = Create(first, resource)
        if kind not in TEMPLATES:
            write = Apply(first, resource, MANAGER, force=True)
        return _Prepared(first, ObjectChange("create", kind, name), (write,))
    if kind in TEMPLATES:  # named by a hash of their content, so they never change
        return _Prepared({**desired, **found})
    after, writes = predict_apply(found, desired, MANAGER), []
    count = replicas_to_hand_over(desired, found)
    if count is not None:
        after = {**after, "spec": {**after["spec"], "replicas": count}}
        handed = replicas_only(desired, count)
        writes.append(Apply(handed, resource, INITIAL_REPLICAS_MANAGER, force=True))
    fields = differences(found, after)
    if fields or writes or not is_owner(found, desired, MANAGER):
        writes.append(Apply(desired, resource, MANAGER, force=True))
    change = ObjectChange("update", kind, name, fields) if fields else None
    return _Prepared(after, change, tuple(writes))


@dataclass(frozen=True, slots=True)
class _Group:
    """The objects of one node group."""

    deployment: Json  # as desired
    prepared: tuple[_Prepared, ...]
    rolls: bool

    @property
    def name(self) -> str:
        return str(self.deployment["metadata"]["name"])

    @property
    def changes_nodes(self) -> bool:
        return any(p.change is not None and p.change.changes_nodes for p in self.prepared)


class _Planner:
    """Collects the writes that are due until a group blocks those behind it."""

    def __init__(self, app: Kubernetes, seen: ObservedTenantCluster) -> None:
        self._app, self._seen = app, seen
        self._found = {name_of(obj): obj for obj in seen.objects}
        shared, *groups = stages(app, seen.defaults)
        self._shared = [self._prepared(obj) for obj in shared]
        self._groups = sorted((self._group(g) for g in groups), key=lambda group: group.rolls)
        prepared = [*self._shared, *(p for g in self._groups for p in g.prepared)]
        self._after = tuple(p.after for p in prepared)
        self._wanted = {name_of(obj) for obj in self._after}
        self._writes: list[Write] = []
        self._blocked_by: dict[str, str] = {}  # group -> what it waits for

    def _prepared(self, desired: Json) -> _Prepared:
        return _prepare(desired, self._found.get(name_of(desired)))

    def _group(self, objects: Sequence[Json]) -> _Group:
        deployment = next(o for o in objects if o["kind"] == "MachineDeployment")
        rolls = rollout_order.rolls(deployment, self._seen.deployments)
        return _Group(deployment, tuple(self._prepared(o) for o in objects), rolls)

    def plan(self) -> TenantClusterPlan:
        """The writes that are due, the groups that wait, and all changes for display."""
        self._writes += [write for p in self._shared for write in p.writes]
        blocker = self._write_groups()
        if not blocker:
            self._writes += [_deletion(o) for o in self._unused() if o["kind"] in TEMPLATES]
        return TenantClusterPlan(
            changes=(*self._object_changes(), *self._deletions(blocker)),
            groups=tuple(self._group_changes()),
            waiting=tuple(self._waiting()),
            writes=tuple(self._writes),
            objects=self._after,
            requeue_after=POLL_SECONDS if blocker or self._writes else None,
        )

    def _write_groups(self) -> str:
        """Add the writes of groups up to the first that blocks; returns what blocks at the end."""
        blocker = ""
        for group in self._groups:
            if not blocker and group.rolls:
                blocker = self._remove_groups() or self._rollout_blocker(group)
            if blocker:
                self._blocked_by[group.name] = blocker
                continue
            self._writes += [write for p in group.prepared for write in p.writes]
            if group.changes_nodes or self._blocks_scaling(group):
                blocker = group.name
        return blocker or self._remove_groups() or self._changing_group()

    def _remove_groups(self) -> str:
        """Add the deletion of groups that the spec does not name; returns one that begins now."""
        begun = [
            obj
            for obj in self._unused()
            if obj["kind"] not in TEMPLATES and "deletionTimestamp" not in obj["metadata"]
        ]
        self._writes += [_deletion(obj) for obj in begun]
        return str(begun[-1]["metadata"]["name"]) if begun else ""

    def _rollout_blocker(self, group: _Group) -> str:
        control_plane = self._seen.control_plane
        version = control_plane.status.version if control_plane else ""
        if rollout_order.is_newer_than_control_plane(
            group.deployment, self._seen.deployments, version
        ):
            return "the control plane"
        return self._changing_group()

    def _changing_group(self) -> str:
        """An existing group that still changes and has made progress lately."""
        seen = self._seen
        changing = (
            d.name
            for d in seen.deployments
            if rollout_order.is_changing(d, seen.machines, seen.proxmox_machines)
            and not self._is_stalled(d.name, rollout_order.ROLLOUT_STALL_SECONDS)
        )
        return next(changing, "")

    def _blocks_scaling(self, group: _Group) -> bool:
        seen = self._seen
        found = next((d for d in seen.deployments if d.name == group.name), None)
        if found is None:
            return True
        if not rollout_order.blocks_scaling(found, seen.machines, seen.proxmox_machines):
            return False
        return not self._is_stalled(group.name, rollout_order.SCALE_STALL_SECONDS)

    def _is_stalled(self, group: str, limit: float) -> bool:
        return self._seen.seconds_without_progress.get(group, 0.0) >= limit

    def _unused(self) -> tuple[Json, ...]:
        return unused_objects(self._app, self._wanted, self._seen)

    # What the plan prints

    def _waiting(self) -> Iterable[WaitingGroup]:
        for group in self._groups:
            if blocker := self._blocked_by.get(group.name):
                trees = [group.deployment]
                yield from rollout_order.waiting_groups(trees, blocker, self._seen.deployments)

    def _object_changes(self) -> Iterable[ObjectChange]:
        yield from (p.change for p in self._shared if p.change is not None)
        for group in self._groups:
            blocker = self._blocked_by.get(group.name, "")
            for prepared in group.prepared:
                if (change := prepared.change) is not None:
                    yield ObjectChange(
                        change.action, change.kind, change.name, change.fields, blocker
                    )

    def _deletions(self, blocker: str) -> Iterable[ObjectChange]:
        """Objects that no longer exist when every rollout is complete."""
        deployments = [
            msgspec.convert(obj, MachineDeployment, strict=False)
            for obj in self._after
            if obj["kind"] == "MachineDeployment"
        ]
        sets = tuple(remaining_sets(deployments, self._seen.machine_sets))
        used = set(_used_templates([s.spec.template for s in sets]))
        begun = {(w.kind.kind, w.name) for w in self._writes if isinstance(w, Delete)}
        for obj in self._seen.managed(self._app):
            name = name_of(obj)
            if name in self._wanted or (name[0] in TEMPLATES and name in used):
                continue
            due = name in begun or "deletionTimestamp" in obj["metadata"]
            yield ObjectChange("delete", *name, (), "" if due else blocker or "its rollout")

    def _group_changes(self) -> Iterable[NodeGroupChange]:
        """Scaled groups, then removed ones, then rolling ones."""
        yield from (self._group_change(g) for g in self._groups if not g.rolls)
        kept = {group.name for group in self._groups}
        for name in sorted({d.name for d in self._seen.deployments} - kept):
            yield node_group_change(name, None, None, self._seen.machine_sets)
        yield from (self._group_change(g) for g in self._groups if g.rolls)

    def _group_change(self, group: _Group) -> NodeGroupChange:
        name = ("MachineDeployment", group.name)
        after = next(obj for obj in self._after if name_of(obj) == name)
        waits_for = self._blocked_by.get(group.name, "")
        return node_group_change(
            group.name, self._found.get(name), after, self._seen.machine_sets, waits_for
        )


def unused_objects(
    app: Kubernetes, wanted: Iterable[ObjectName], seen: ObservedTenantCluster
) -> tuple[Json, ...]:
    """
    Managed objects of node groups that are not wanted any more.

    A template that a MachineSet or MachineDeployment refers to is in use: Cluster API reads it.
    """
    names = set(wanted)
    templates = [s.spec.template for s in seen.machine_sets]
    used = set(_used_templates(templates + [d.spec.template for d in seen.deployments]))
    return tuple(
        obj
        for obj in seen.managed(app)
        if name_of(obj) not in names and not (obj["kind"] in TEMPLATES and name_of(obj) in used)
    )


def _used_templates(templates: Iterable[Any]) -> Iterable[ObjectName]:
    for spec in (template.spec for template in templates):
        for ref in (spec.infrastructure_ref, spec.bootstrap.config_ref):
            if ref is not None:
                yield ref.kind, ref.name


def _deletion(obj: Json) -> Delete:
    meta = obj["metadata"]
    return Delete(RESOURCES[obj["kind"]], meta["name"], meta["namespace"], meta["uid"])


def _plan_deletion(app: Kubernetes, seen: ObservedTenantCluster) -> TenantClusterPlan | Done:
    """Delete the Cluster, which deletes machines and control plane; then what is left."""
    shared = {kind.resource.kind for kind in CLUSTER_KINDS}
    left = (*(o for o in seen.objects if o["kind"] in shared), *seen.managed(app))
    if seen.cluster is None and not seen.managed(app):
        return Done()
    first = [o for o in left if o["kind"] == "Cluster"] or list(seen.managed(app))
    waits_for = f"Cluster {app.name}" if seen.cluster is not None else ""
    due = {name_of(obj) for obj in first}
    return TenantClusterPlan(
        changes=tuple(
            ObjectChange("delete", *name_of(o), (), "" if name_of(o) in due else waits_for)
            for o in left
        ),
        groups=tuple(
            node_group_change(d.name, None, None, seen.machine_sets) for d in seen.deployments
        ),
        writes=tuple(_deletion(o) for o in first if "deletionTimestamp" not in o["metadata"]),
        requeue_after=POLL_SECONDS,
    )
