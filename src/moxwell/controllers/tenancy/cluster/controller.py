"""``tenancy.cluster``: keeps the Cluster API objects of each ``Kubernetes`` object."""

from collections.abc import Callable, Sequence
from typing import Any

from moxwell.api.capi.controlplane import KamajiControlPlane
from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.cozystack import Kubernetes, KubernetesStatus
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.kinds import Object
from moxwell.clock import Clock, SystemClock
from moxwell.controllers.tenancy.cluster.defaults import Defaults
from moxwell.controllers.tenancy.cluster.describe import describe_cluster
from moxwell.controllers.tenancy.cluster.plan import (
    ObservedTenantCluster,
    TenantClusterPlan,
    TenantClusterReason,
    plan_cluster,
)
from moxwell.controllers.tenancy.cluster.preflight import ClusterPreflight
from moxwell.controllers.tenancy.cluster.see import (
    NAMESPACES,
    ClusterMachines,
    TenantClusterObserver,
)
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.preflight.outcome import RegionCheck
from moxwell.runtime.cache import Cache
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done
from moxwell.runtime.objects import key_of
from moxwell.runtime.reconciler import Note, Reconciler
from moxwell.runtime.watches import COALESCE_SECONDS, Watch
from moxwell.runtime.writes import Writes

WATCHED = (Cluster, KamajiControlPlane, MachineDeployment)
WATCHED_MACHINES = (MachineSet, Machine, ProxmoxMachine)
PRESCRIBED = ("annotations", "labels")  # of a namespace, by its Tenant


def _cluster_of(obj: Object) -> list[Key]:
    name = obj.metadata.labels.get(CLUSTER_NAME)
    return [Key(obj.namespace, name)] if name else []


def _clusters_in(clusters: Cache[Kubernetes]) -> Callable[[Any], list[Key]]:
    def keys(namespace: Any) -> list[Key]:
        name = namespace["metadata"]["name"]
        return [key for key in map(key_of, clusters.list()) if key.namespace == name]

    return keys


def _has_other_defaults(old: Any, new: Any) -> bool:
    """Whether a namespace, which holds what its Tenant prescribes, changed for its clusters."""
    if old is None or new is None:
        return False
    return any(old["metadata"].get(name) != new["metadata"].get(name) for name in PRESCRIBED)


class TenantClusterReconciler(
    Reconciler[Kubernetes, ObservedTenantCluster, TenantClusterPlan | Done, KubernetesStatus]
):
    """Writes the objects of a tenant cluster, one group after the other."""

    kind = Kubernetes
    finalizer = "apps.cozystack.io/kubernetes"
    watches: Sequence[Watch] = (
        *(Watch(kind, _cluster_of) for kind in WATCHED),
        *(Watch(kind, _cluster_of, delay=COALESCE_SECONDS) for kind in WATCHED_MACHINES),
    )

    def __init__(
        self,
        kube: Kube,
        defaults: Callable[[], Defaults],
        clock: Clock | None = None,
        caches: Caches | None = None,
        preflight: ClusterPreflight | None = None,
    ) -> None:
        """``caches`` are those of the manager; without them machines are listed."""
        self._kube = kube
        if caches is not None:
            in_namespace = _clusters_in(caches.of(Kubernetes))
            watch = Watch(NAMESPACES, in_namespace, _has_other_defaults)
            self.watches = (*self.watches, watch)
        whole = kube.with_managed_fields()
        cached = ClusterMachines.of(caches) if caches is not None else None
        self._observer = TenantClusterObserver(
            whole, defaults, clock or SystemClock(), cached, preflight
        )

    async def check(self, app: Kubernetes) -> tuple[RegionCheck, ...]:
        """The checks of a cluster that may not exist yet, with facts read now."""
        return await self._observer.check(app, self._kube)

    async def see(self, obj: Kubernetes, reader: Reader) -> ObservedTenantCluster:
        return await self._observer.see(obj, reader)

    def plan(self, obj: Kubernetes, seen: ObservedTenantCluster) -> TenantClusterPlan | Done:
        return plan_cluster(obj, seen)

    async def act(self, move: TenantClusterPlan | Done) -> None:
        if isinstance(move, TenantClusterPlan):
            await Writes(move.writes).perform(self._kube)

    def describe(
        self, obj: Kubernetes, seen: ObservedTenantCluster, move: TenantClusterPlan | Done
    ) -> KubernetesStatus | None:
        return describe_cluster(obj, seen, move) if isinstance(move, TenantClusterPlan) else None

    def events(
        self, obj: Kubernetes, seen: ObservedTenantCluster, move: TenantClusterPlan | Done
    ) -> Sequence[Note]:
        if isinstance(move, Done):
            return ()
        created = [change for change in move.due if change.action == "create"]
        return [
            Note(TenantClusterReason.CREATED, f"created {change.kind} {change.name}")
            for change in created
        ]

    def requeue_after(
        self, obj: Kubernetes, seen: ObservedTenantCluster, move: TenantClusterPlan | Done
    ) -> float | None:
        return move.requeue_after
