"""The Cluster controller of Cluster API: connects the parts of a cluster, deletes them in order."""

from collections.abc import Iterable, Sequence
from typing import Any

from moxwell.api.capi.core import Cluster, ClusterStatus, Machine
from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.kinds import Object
from moxwell.embedded.clusterapi.cluster.plan import ObservedCluster, describe, next_move
from moxwell.embedded.clusterapi.machines import cached_machines
from moxwell.embedded.clusterapi.references import ReferenceResolver
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.watches import COALESCE_SECONDS, Watch


def cluster_key(obj: Any) -> list[Key]:
    """The key of the Cluster that an object names in its spec or label."""
    if named := getattr(getattr(obj, "spec", None), "cluster_name", ""):
        return [Key(obj.namespace, named)]
    meta = obj.metadata if isinstance(obj, Object) else None
    labels = meta.labels if meta else obj["metadata"].get("labels") or {}
    namespace = meta.namespace if meta else obj["metadata"].get("namespace", "")
    return [Key(namespace, labels[CLUSTER_NAME])] if CLUSTER_NAME in labels else []


class ClusterController(WritingReconciler[Cluster, ObservedCluster, ClusterStatus]):
    """Reconciles Clusters; ``parts`` are the provider kinds whose changes cause a pass."""

    kind = Cluster
    finalizer = "cluster.cluster.x-k8s.io"

    def __init__(
        self, kube: Kube, resolver: ReferenceResolver, machines: Cache[Any], parts: Sequence[Any]
    ) -> None:
        super().__init__(kube)
        self._resolver, self._machines = resolver, machines
        self.watches: Sequence[Watch] = (
            Watch(Machine, cluster_key, delay=COALESCE_SECONDS),
            *(Watch(part, cluster_key) for part in parts),
        )

    async def see(self, cluster: Cluster, reader: Reader) -> ObservedCluster:
        spec, namespace = cluster.spec, cluster.namespace
        infrastructure = await self._resolver.find(reader, spec.infrastructure_ref, namespace)
        control_plane = await self._resolver.find(reader, spec.control_plane_ref, namespace)
        if not cluster.deleting:
            machines = cached_machines(self._machines, cluster.name, namespace)
            return ObservedCluster(infrastructure, control_plane, tuple(machines))
        return ObservedCluster(
            infrastructure,
            control_plane,
            await _live(reader, Machine, cluster),
            await _live(reader, MachineDeployment, cluster),
            await _live(reader, MachineSet, cluster),
        )

    def plan(self, cluster: Cluster, seen: ObservedCluster) -> WriteMove:
        return next_move(cluster, seen)

    def describe(self, cluster: Cluster, seen: ObservedCluster, move: WriteMove) -> ClusterStatus:
        return describe(cluster, seen)


async def _live(reader: Reader, kind: Any, cluster: Cluster) -> tuple[Any, ...]:
    """The objects of the cluster, read live: a stale list would let one of them outlive it."""
    found: Iterable[Any] = (await reader.list(kind, cluster.namespace)).items
    return tuple(obj for obj in found if obj.spec.cluster_name == cluster.name)
