"""The caches of a scaled cluster, and their content at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moxwell.api.karpenter.capacity import CapacityBuffer, NodeOverlay
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.kinds import Resource
from moxwell.runtime.cache import Cache
from moxwell.runtime.caches import Caches
from moxwell.scheduling.packing.pod_volumes import StorageObjects

Json = Mapping[str, Any]
PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", False)
CSI_NODES = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """The objects of a cluster at one moment; node pools and node claims by name."""

    pools: tuple[NodePool, ...] = ()
    claims: tuple[NodeClaim, ...] = ()
    nodes: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()
    daemon_sets: tuple[Json, ...] = ()
    namespaces: tuple[Json, ...] = ()
    budgets: tuple[Json, ...] = ()
    csi_nodes: tuple[Json, ...] = ()
    storage: StorageObjects = field(default_factory=StorageObjects)


class ScaledCluster:
    """The informer caches that the autoscaler reads; creating it starts them."""

    def __init__(self, caches: Caches) -> None:
        self.pools: Cache[NodePool] = caches.of(NodePool, optional=True)
        self.claims: Cache[NodeClaim] = caches.of(NodeClaim, optional=True)
        self.overlays: Cache[NodeOverlay] = caches.of(NodeOverlay, optional=True)
        self.buffers: Cache[CapacityBuffer] = caches.of(CapacityBuffer, optional=True)
        self.nodes: Cache[Any] = caches.of(NODES)
        self.pods: Cache[Any] = caches.of(PODS)
        self._others: dict[Resource, Cache[Any]] = {
            kind: caches.of(kind)
            for kind in (
                NAMESPACES,
                CLAIMS,
                VOLUMES,
                STORAGE_CLASSES,
                CSI_NODES,
                DAEMON_SETS,
                BUDGETS,
            )
        }

    @property
    def synced(self) -> bool:
        """Whether every cache has been filled."""
        kinds: tuple[Cache[Any], ...] = (self.pools, self.claims, self.overlays, self.buffers)
        own: tuple[Cache[Any], ...] = (*kinds, self.nodes, self.pods)
        return all(c.synced for c in (*own, *self._others.values()))

    def objects(self) -> ClusterObjects:
        """The content of the caches now."""
        return ClusterObjects(
            pools=self.pools.list(),
            claims=self.claims.list(),
            nodes=self.nodes.list(),
            pods=self.pods.list(),
            daemon_sets=self._others[DAEMON_SETS].list(),
            namespaces=self._others[NAMESPACES].list(),
            budgets=self._others[BUDGETS].list(),
            csi_nodes=self._others[CSI_NODES].list(),
            storage=StorageObjects(
                {key_text(o): o for o in self._others[CLAIMS].list()},
                {name_of(o): o for o in self._others[VOLUMES].list()},
                {name_of(o): o for o in self._others[STORAGE_CLASSES].list()},
            ),
        )


def name_of(obj: Json) -> str:
    """The name of an object."""
    return str(obj["metadata"]["name"])


def key_text(obj: Json) -> str:
    """``namespace/name`` of an object."""
    return f"{obj['metadata'].get('namespace') or 'default'}/{obj['metadata']['name']}"
