"""The loop over tenant clusters."""

from collections.abc import Callable, Sequence
from typing import Any

from moxwell.api.capi.controlplane import KamajiControlPlane
from moxwell.api.capi.core import Cluster
from moxwell.api.capi.fleets import MachineDeployment, MachineSet
from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.cozystack import Kubernetes, KubernetesStatus
from moxwell.api.kinds import Object
from moxwell.controllers.tenancy.cluster import plan
from moxwell.controllers.tenancy.cluster.defaults import Defaults
from moxwell.controllers.tenancy.cluster.expand import expand
from moxwell.controllers.tenancy.cluster.see import RESOURCES, see
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

POLL_SECONDS = 5.0
MANAGER = "moxwell-tenancy"
Json = dict[str, Any]


def _app_of(obj: Object) -> list[Key]:
    name = obj.metadata.labels.get(CLUSTER_NAME)
    return [Key(obj.namespace, name)] if name else []


class TenantClusters:
    """Keeps the objects that a ``Kubernetes`` stands for."""

    kind = Kubernetes
    finalizer = "apps.cozystack.io/kubernetes"
    watches: Sequence[Watch] = tuple(
        Watch(kind, _app_of)
        for kind in (Cluster, KamajiControlPlane, MachineDeployment, MachineSet)
    )

    def __init__(self, kube: Kube, defaults: Callable[[], Defaults]) -> None:
        self._kube, self._defaults = kube, defaults

    async def reconcile(self, app: Kubernetes) -> Outcome[KubernetesStatus]:
        seen = await see(self._kube, app)
        if app.deleting:
            return await self._unmake(app, seen)
        desired = expand(app, self._defaults())
        notes = [note for obj in desired if (note := await self._put(obj))]
        for obj in plan.leftovers(desired, seen):
            await self._remove(obj)
        return Outcome(plan.describe(app, seen), notes=tuple(notes))

    async def _put(self, obj: Json) -> Note | None:
        """
        Templates are made once; the rest is applied, field by field.

        The first write is a plain create: what it holds and later applies leave out, the first
        count of an autoscaled group, is then nobody's to remove.
        """
        resource, meta = RESOURCES[obj["kind"]], obj["metadata"]
        found = await self._kube.find(resource, meta["name"], meta["namespace"])
        if found is None:
            await self._kube.create(plan.first_replicas(obj), resource)
            return Note("Made", f"made {obj['kind']} {meta['name']}")
        if obj["kind"] not in plan.TEMPLATES:
            await self._kube.apply(obj, resource, manager=MANAGER, force=True)
        return None

    async def _remove(self, obj: Json) -> None:
        meta = obj["metadata"]
        if "deletionTimestamp" not in meta:
            await self._kube.delete(
                RESOURCES[obj["kind"]], meta["name"], meta["namespace"], uid=meta["uid"]
            )

    async def _unmake(self, app: Kubernetes, seen: plan.Seen) -> Outcome[KubernetesStatus]:
        """The Cluster takes machines, control plane and ground with it; then the rest goes."""
        status = plan.describe(app, seen)
        if seen.cluster is not None:
            if not seen.cluster.deleting:
                await self._kube.delete(Cluster, app.name, app.namespace, uid=seen.cluster.uid)
            return Outcome(status, again=POLL_SECONDS)
        for obj in seen.ours:
            await self._remove(obj)
        return Outcome(status, again=POLL_SECONDS, settled=not seen.ours)
