"""Reads the objects of a tenant cluster from the management API."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from moxwell.api.capi.controlplane import KamajiControlPlane
from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.cozystack import Kubernetes
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.kinds import Object, Resource
from moxwell.clock import Clock
from moxwell.controllers.tenancy.annotations import (
    BRIDGE,
    FIREWALL_GROUP,
    IP_POOL,
    ISOLATED,
    POOL,
    TENANT_LABEL,
    VLAN,
)
from moxwell.controllers.tenancy.cluster.defaults import Defaults
from moxwell.controllers.tenancy.cluster.plan import (
    CLUSTER_KINDS,
    GROUP_KINDS,
    OPTIONAL_KINDS,
    ObservedTenantCluster,
)
from moxwell.controllers.tenancy.cluster.preflight import ClusterPreflight
from moxwell.controllers.tenancy.cluster.rollout_order import GroupProgress
from moxwell.errors import Invalid, Missing
from moxwell.kube.reader import Reader
from moxwell.preflight.outcome import RegionCheck
from moxwell.runtime.cache import Cache
from moxwell.runtime.caches import Caches
from moxwell.runtime.index import by_label
from moxwell.runtime.key import Key

Json = dict[str, Any]
BY_CLUSTER = "tenancy.cluster"
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)


def defaults_in(namespace: Json, defaults: Defaults) -> Defaults:
    """The defaults for clusters of a namespace, given its metadata."""
    annotations = namespace.get("annotations") or {}
    return replace(
        defaults,
        tenant=(namespace.get("labels") or {}).get(TENANT_LABEL, ""),
        firewall_group=annotations.get(FIREWALL_GROUP, ""),
        bridge=annotations.get(BRIDGE, ""),
        vlan=int(annotations[VLAN]) if annotations.get(VLAN, "").isdecimal() else None,
        pool=annotations.get(POOL, ""),
        ip_pool=annotations.get(IP_POOL, ""),
        isolated=annotations.get(ISOLATED) == "true",
    )


class ProgressTimer:
    """Measures for how long each node group has made no progress; a restart begins at zero."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[tuple[Key, str], tuple[GroupProgress, float]] = {}

    def observe(
        self,
        key: Key,
        deployments: Iterable[MachineDeployment],
        machines: Iterable[Machine],
        proxmox_machines: Iterable[ProxmoxMachine],
    ) -> dict[str, float]:
        """Seconds without progress by MachineDeployment of the cluster ``key``."""
        now, known = self._clock.monotonic(), self._since
        found = {}
        for group in deployments:
            progress = GroupProgress.of(group, machines, proxmox_machines)
            last = known.get((key, group.name))
            if last is None or last[0] != progress:
                last = known[key, group.name] = (progress, now)
            found[group.name] = now - last[1]
        for stale in [k for k in known if k[0] == key and k[1] not in found]:
            del known[stale]
        return found


@dataclass(frozen=True, slots=True)
class ClusterMachines:
    """The machines of clusters, which are many, from the caches of their kinds."""

    machines: Cache[Machine]
    proxmox_machines: Cache[ProxmoxMachine]

    @classmethod
    def of(cls, caches: Caches) -> "ClusterMachines":
        """With an index by cluster."""
        index = {BY_CLUSTER: by_label(CLUSTER_NAME)}
        return cls(caches.of(Machine, index), caches.of(ProxmoxMachine, index))

    def find(self, cluster: Key) -> tuple[tuple[Machine, ...], tuple[ProxmoxMachine, ...]]:
        """The Machines and ProxmoxMachines with the label of a cluster."""
        machines = self.machines.by(BY_CLUSTER, cluster.name)
        guests = self.proxmox_machines.by(BY_CLUSTER, cluster.name)
        return (
            tuple(m for m in machines if m.namespace == cluster.namespace),
            tuple(m for m in guests if m.namespace == cluster.namespace),
        )


class TenantClusterObserver:
    """
    Reads a tenant cluster.

    ``whole`` is a client that keeps managed fields: they show whether an apply changes anything.
    Without ``cached`` machines are listed.
    """

    def __init__(
        self,
        whole: Reader,
        defaults: Callable[[], Defaults],
        clock: Clock,
        cached: ClusterMachines | None = None,
        preflight: ClusterPreflight | None = None,
    ) -> None:
        self._whole, self._defaults, self._timer = whole, defaults, ProgressTimer(clock)
        self._cached, self._preflight = cached, preflight

    async def see(self, app: Kubernetes, reader: Reader) -> ObservedTenantCluster:
        """Everything that the plan of ``app`` depends on."""
        namespace, labels = app.namespace, {CLUSTER_NAME: app.name}
        control_plane = await reader.find(KamajiControlPlane, app.name, namespace)
        deployments = (await reader.list(MachineDeployment, namespace, labels=labels)).items
        key = Key(namespace, app.name)
        machines, guests = await self._machines(key, reader)
        defaults = await self._defaults_for(app, reader, control_plane)
        return ObservedTenantCluster(
            defaults=defaults,
            cluster=await reader.find(Cluster, app.name, namespace),
            control_plane=control_plane,
            deployments=tuple(deployments),
            machine_sets=tuple((await reader.list(MachineSet, namespace, labels=labels)).items),
            machines=machines,
            proxmox_machines=guests,
            objects=await self._objects(app),
            seconds_without_progress=self._timer.observe(key, deployments, machines, guests),
            checks=await self._checks(app, defaults, reader, tuple(deployments), machines),
        )

    async def check(self, app: Kubernetes, reader: Reader) -> tuple[RegionCheck, ...]:
        """All checks of a cluster that may not exist yet, with facts read now."""
        if self._preflight is None:
            return ()
        defaults = await self._defaults_for(app, reader, None)
        return await self._preflight.check(app, defaults, reader, fresh=True)

    async def _checks(
        self,
        app: Kubernetes,
        defaults: Defaults,
        reader: Reader,
        deployments: tuple[MachineDeployment, ...],
        machines: tuple[Machine, ...],
    ) -> tuple[RegionCheck, ...] | None:
        """Regions are checked until all nodes are ready; a running cluster costs no requests."""
        if self._preflight is None or app.deleting:
            return None
        if deployments and all(
            (d.status.ready_replicas or 0) >= (d.spec.replicas or 0) for d in deployments
        ):
            return ()
        try:
            return await self._preflight.check(app, defaults, reader, machines)
        except Invalid:
            return None  # the plan raises it

    async def _machines(
        self, cluster: Key, reader: Reader
    ) -> tuple[tuple[Machine, ...], tuple[ProxmoxMachine, ...]]:
        if self._cached is not None:
            return self._cached.find(cluster)
        namespace, labels = cluster.namespace, {CLUSTER_NAME: cluster.name}
        machines = await reader.list(Machine, namespace, labels=labels)
        guests = await reader.list(ProxmoxMachine, namespace, labels=labels)
        return tuple(machines.items), tuple(guests.items)

    async def _defaults_for(
        self, app: Kubernetes, reader: Reader, control_plane: KamajiControlPlane | None
    ) -> Defaults:
        namespace = await reader.find(NAMESPACES, app.namespace)
        defaults = defaults_in((namespace or {}).get("metadata") or {}, self._defaults())
        running = control_plane.status.version if control_plane else ""
        return replace(defaults, running_version=running)

    async def _objects(self, app: Kubernetes) -> tuple[Json, ...]:
        """The objects that carry the cluster's label, or a name that one of its objects has."""
        found: list[Json] = []
        for resource in (kind.resource for kind in CLUSTER_KINDS):
            obj = await self._whole.find(resource, app.name, app.namespace)
            found += [_typed(obj, resource)] if obj is not None else []
        for kind in GROUP_KINDS:
            items = await self._listed(kind, app.namespace)
            found += [_typed(obj, kind.resource) for obj in items if _may_belong(obj, app)]
        return tuple(found)

    async def _listed(self, kind: type[Object], namespace: str) -> Sequence[Json]:
        try:
            return (await self._whole.list(kind.resource, namespace)).items
        except Missing:
            if kind in OPTIONAL_KINDS:
                return ()
            raise


def _may_belong(obj: Json, app: Kubernetes) -> bool:
    labels = obj["metadata"].get("labels") or {}
    named = obj["metadata"]["name"].startswith(f"{app.name}-")
    return bool(labels.get(CLUSTER_NAME) == app.name or (named and CLUSTER_NAME not in labels))


def _typed(obj: Json, resource: Resource) -> Json:
    return {**obj, "apiVersion": resource.api_version, "kind": resource.kind}
