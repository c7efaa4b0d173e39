"""The Kamaji control plane provider of Cluster API: one TenantControlPlane per control plane."""

from collections.abc import Sequence

from moxwell.api.capi.controlplane import ControlPlaneStatus, KamajiControlPlane
from moxwell.api.capi.core import Cluster
from moxwell.api.kamaji import TenantControlPlane
from moxwell.embedded.clusterapi.controlplane.plan import (
    ObservedKamajiControlPlane,
    describe,
    next_move,
    secret_names,
)
from moxwell.embedded.clusterapi.references import ReferenceResolver
from moxwell.embedded.controllermanager.resources import SECRETS
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.key import Key
from moxwell.runtime.watches import Watch


def _owner(obj: TenantControlPlane) -> list[Key]:
    owner = obj.metadata.controller
    owned = owner is not None and owner.kind == "KamajiControlPlane"
    return [Key(obj.namespace, owner.name)] if owner and owned else []


class KamajiControlPlaneController(
    WritingReconciler[KamajiControlPlane, ObservedKamajiControlPlane, ControlPlaneStatus]
):
    """Reconciles KamajiControlPlanes."""

    kind = KamajiControlPlane
    finalizer = "controlplane.cluster.x-k8s.io/kamaji"
    watches: Sequence[Watch] = (Watch(TenantControlPlane, _owner),)

    def __init__(self, kube: Kube, resolver: ReferenceResolver) -> None:
        super().__init__(kube)
        self._resolver = resolver

    async def see(
        self, control_plane: KamajiControlPlane, reader: Reader
    ) -> ObservedKamajiControlPlane:
        name, namespace = control_plane.name, control_plane.namespace
        tenant = await reader.find(TenantControlPlane.resource, name, namespace)
        owners = [o for o in control_plane.metadata.owner_references if o.kind == "Cluster"]
        cluster = await reader.find(Cluster, owners[0].name, namespace) if owners else None
        if cluster is None:
            return ObservedKamajiControlPlane(tenant)
        names = secret_names(control_plane, cluster)
        secrets = {n: await reader.find(SECRETS, n, namespace) for n in names}
        ref = cluster.spec.infrastructure_ref
        infrastructure = await self._resolver.find(reader, ref, namespace)
        return ObservedKamajiControlPlane(tenant, cluster, infrastructure, secrets)

    def plan(
        self, control_plane: KamajiControlPlane, seen: ObservedKamajiControlPlane
    ) -> WriteMove:
        return next_move(control_plane, seen)

    def describe(
        self, control_plane: KamajiControlPlane, seen: ObservedKamajiControlPlane, move: WriteMove
    ) -> ControlPlaneStatus:
        return describe(control_plane, seen)
