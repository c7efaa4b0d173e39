"""
Makes a management cluster, or removes it: one move at a time, until nothing is left to do.

The reconciled object is a ConfigMap of the temporary API. Its key ``undo`` reverses the direction.
"""

from typing import Any

from moxwell.errors import MoxwellError
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.management import transfer
from moxwell.management.manifests import apply_stage
from moxwell.management.objects import CONFIG_MAPS, SECRETS
from moxwell.management.observed import (
    OWN_NAMESPACE,
    ManagementObserver,
    ObservedManagement,
    kubeconfig_name,
)
from moxwell.management.plan import (
    BootstrapMove,
    CreateClusterObjects,
    DeleteCluster,
    DeleteMoved,
    ForgetKubeconfig,
    InstallStage,
    KeepKubeconfig,
    MoveBack,
    MoveForward,
    PatchSource,
    PatchTarget,
    next_move,
)
from moxwell.management.spec import ManagementSpec
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.tenant_clients import TenantClients
from moxwell.runtime.writes import Create, Delete

Json = dict[str, Any]
REQUEST = "management-cluster"  # the ConfigMap
UNDO = "undo"


def request_object(*, undo: bool) -> Json:
    """The ConfigMap that asks for the cluster, or for its removal."""
    meta = {"name": REQUEST, "namespace": OWN_NAMESPACE}
    data = {UNDO: "true" if undo else "false"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def is_undo(request: Json) -> bool:
    return bool((request.get("data") or {}).get(UNDO) == "true")


def is_request(obj: Json) -> bool:
    meta = obj["metadata"]
    return (meta.get("namespace"), meta["name"]) == (OWN_NAMESPACE, REQUEST)


class BootstrapReconciler(Reconciler[Json, ObservedManagement, BootstrapMove, None]):
    """Reconciles the request of a bootstrap."""

    kind = CONFIG_MAPS

    def __init__(
        self, kube: Kube, spec: ManagementSpec, observer: ManagementObserver, targets: TenantClients
    ) -> None:
        self._kube, self._spec = kube, spec
        self._observer, self._targets = observer, targets
        self.problem = ""  # why the last move failed

    async def see(self, request: Json, reader: Reader) -> ObservedManagement:
        return await self._observer.observe(reader, undo=is_undo(request))

    def plan(self, request: Json, seen: ObservedManagement) -> BootstrapMove:
        return next_move(self._spec, seen, undo=is_undo(request))

    async def act(self, move: BootstrapMove) -> Any:
        try:
            await self._perform(move)
        except MoxwellError as error:
            self.problem = str(error)
            raise
        self.problem = ""

    async def _perform(self, move: BootstrapMove) -> None:
        match move:
            case CreateClusterObjects():
                for resource, obj in move.objects:
                    await Create(obj, resource).perform(self._kube)
            case KeepKubeconfig():
                await Create(self._kept(move.secret), SECRETS).perform(self._kube)
            case InstallStage():
                await apply_stage(await self._target(), move.stage)
            case PatchSource() | DeleteCluster():
                await move.write.perform(self._kube)
            case PatchTarget():
                await move.write.perform(await self._target())
            case MoveForward():
                target = await self._target()
                await transfer.ensure_namespace(target, self._spec.namespace)
                await transfer.create_objects(target, move.objects)
            case DeleteMoved():
                await transfer.delete_objects(self._kube, move.objects)
            case MoveBack():
                await transfer.create_objects(self._kube, move.objects)
            case ForgetKubeconfig():
                kept = Delete(SECRETS, kubeconfig_name(self._spec), OWN_NAMESPACE)
                await kept.perform(self._kube)

    async def _target(self) -> Kube:
        return await self._targets.get(Key(OWN_NAMESPACE, self._spec.name))

    def _kept(self, secret: Json) -> Json:
        meta = {"name": kubeconfig_name(self._spec), "namespace": OWN_NAMESPACE}
        head = {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
        return head | {"data": secret["data"]}

    def describe(self, request: Json, seen: ObservedManagement, move: BootstrapMove) -> None:
        return None
