"""The loop over Clusters."""

from collections.abc import Sequence
from typing import Any

import msgspec

from moxwell.api.capi.core import Cluster, ClusterStatus, Machine
from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.kinds import Object
from moxwell.embedded.clusterapi.cluster import plan
from moxwell.embedded.clusterapi.references import References
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Outcome
from moxwell.runtime.watches import Watch

POLL_SECONDS = 5.0


def cluster_key(obj: Any) -> list[Key]:
    """The cluster an object names in its spec, or is labelled with."""
    if named := getattr(getattr(obj, "spec", None), "cluster_name", ""):
        return [Key(obj.namespace, named)]
    meta = obj.metadata if isinstance(obj, Object) else None
    labels = meta.labels if meta else obj["metadata"].get("labels") or {}
    namespace = meta.namespace if meta else obj["metadata"].get("namespace", "")
    return [Key(namespace, labels[CLUSTER_NAME])] if CLUSTER_NAME in labels else []


class Clusters:
    """Joins a Cluster's parts, and takes them down in order."""

    kind = Cluster
    finalizer = "cluster.cluster.x-k8s.io"

    def __init__(self, kube: Kube, refs: References, parts: Sequence[Any]) -> None:
        self._kube, self._refs = kube, refs
        self.watches: Sequence[Watch] = (
            Watch(Machine, cluster_key),
            *(Watch(part, cluster_key) for part in parts),
        )

    async def reconcile(self, cluster: Cluster) -> Outcome[ClusterStatus]:
        seen = await self._see(cluster)
        if cluster.deleting:
            return await self._unmake(cluster, seen)
        given = plan.endpoint(cluster, seen)
        if given is not None:
            change = {"spec": {"controlPlaneEndpoint": msgspec.to_builtins(given)}}
            await self._kube.merge(Cluster, cluster.name, change, cluster.namespace)
        status = plan.describe(cluster, seen)
        waiting = status.phase != "Provisioned"
        return Outcome(status, again=POLL_SECONDS if waiting else None)

    async def _see(self, cluster: Cluster) -> plan.Seen:
        found = []
        for ref in (cluster.spec.infrastructure_ref, cluster.spec.control_plane_ref):
            obj = await self._refs.find(ref, cluster.namespace)
            if ref is not None and obj is not None and not cluster.deleting:
                obj = await self._refs.adopt(obj, ref, cluster, cluster.name)
            found.append(obj)
        machines = await self._owned(Machine, cluster)
        return plan.Seen(found[0], found[1], tuple(machines))

    async def _owned(self, kind: Any, cluster: Cluster) -> Sequence[Any]:
        """By what they name, not by label: whoever writes a Machine by hand writes no label."""
        page = await self._kube.list(kind, cluster.namespace)
        return [obj for obj in page.items if obj.spec.cluster_name == cluster.name]

    async def _unmake(self, cluster: Cluster, seen: plan.Seen) -> Outcome[ClusterStatus]:
        """Machines first, then the control plane, then the infrastructure."""
        status = plan.describe(cluster, seen)
        for kind in (MachineDeployment, MachineSet, Machine):
            left = await self._owned(kind, cluster)
            for obj in left:
                if not obj.deleting:
                    await self._kube.delete(kind, obj.name, obj.namespace, uid=obj.uid)
            if left:
                return Outcome(status, again=POLL_SECONDS)
        for ref in (cluster.spec.control_plane_ref, cluster.spec.infrastructure_ref):
            if not await self._refs.delete(ref, cluster.namespace):
                return Outcome(status, again=POLL_SECONDS)
        return Outcome(status, settled=True)
