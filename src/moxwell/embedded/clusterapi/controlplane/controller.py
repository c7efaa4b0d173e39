"""The loop over KamajiControlPlanes."""

from collections.abc import Sequence
from typing import Any

import msgspec

from moxwell.api.capi.controlplane import ControlPlaneStatus, KamajiControlPlane
from moxwell.api.capi.core import Cluster
from moxwell.api.capi.shared import Endpoint
from moxwell.api.kamaji import TenantControlPlane
from moxwell.api.kinds import own
from moxwell.embedded.clusterapi.controlplane import plan
from moxwell.embedded.clusterapi.references import References
from moxwell.embedded.clusterapi.tenant_clients import SECRETS
from moxwell.embedded.clusterapi.tenantcontrolplane.controller import put_secret
from moxwell.errors import Invalid
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Outcome
from moxwell.runtime.watches import Watch

POLL_SECONDS = 3.0


def _owner_plane(obj: TenantControlPlane) -> list[Key]:
    owner = obj.metadata.controller
    named = owner is not None and owner.kind == "KamajiControlPlane"
    return [Key(obj.namespace, owner.name)] if owner and named else []


class ControlPlanes:
    """Has a control plane hosted, and tells its cluster about it."""

    kind = KamajiControlPlane
    finalizer = "controlplane.cluster.x-k8s.io/kamaji"
    watches: Sequence[Watch] = (Watch(TenantControlPlane, _owner_plane),)

    def __init__(self, kube: Kube, refs: References) -> None:
        self._kube, self._refs = kube, refs

    async def reconcile(self, plane: KamajiControlPlane) -> Outcome[ControlPlaneStatus]:
        tenant = await self._kube.find(TenantControlPlane, plane.name, plane.namespace)
        if plane.deleting:
            return await self._unmake(plane, tenant)
        cluster = await self._cluster(plane)
        if cluster is None:
            return Outcome(plan.describe(plane, tenant), again=POLL_SECONDS)
        tenant = await self._host(plane, cluster, tenant)
        status = plan.describe(plane, tenant)
        given = plan.endpoint(tenant)
        if given is not None and status.ready:
            await self._hand_over(plane, cluster, given)
        return Outcome(status, again=None if status.ready else POLL_SECONDS)

    async def _cluster(self, plane: KamajiControlPlane) -> Cluster | None:
        owners = [o for o in plane.metadata.owner_references if o.kind == "Cluster"]
        return await self._kube.find(Cluster, owners[0].name, plane.namespace) if owners else None

    async def _host(
        self, plane: KamajiControlPlane, cluster: Cluster, tenant: TenantControlPlane | None
    ) -> TenantControlPlane:
        """Make the TenantControlPlane or bring it to what is wanted; unchanged is not written."""
        wanted = plan.wanted(plane, cluster)
        if tenant is None:
            meta = {
                "name": plane.name,
                "namespace": plane.namespace,
                "ownerReferences": [msgspec.to_builtins(own(plane))],
            }
            resource = TenantControlPlane.resource
            head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
            await self._kube.create(head | {"spec": wanted}, resource)
            return await self._kube.get(TenantControlPlane, plane.name, plane.namespace)
        return await self._kube.merge(
            TenantControlPlane, plane.name, {"spec": wanted}, plane.namespace
        )

    async def _hand_over(
        self, plane: KamajiControlPlane, cluster: Cluster, given: Endpoint
    ) -> None:
        await self._secrets(plane, cluster)
        endpoint = {"spec": {"controlPlaneEndpoint": msgspec.to_builtins(given)}}
        if plane.spec.control_plane_endpoint != given:
            await self._kube.merge(KamajiControlPlane, plane.name, endpoint, plane.namespace)
        await self._tell_infrastructure(cluster, given, endpoint)

    async def _secrets(self, plane: KamajiControlPlane, cluster: Cluster) -> None:
        admin = await self._data(f"{plane.name}-admin-kubeconfig", plane.namespace)
        authority = await self._data(f"{plane.name}-ca", plane.namespace)
        for secret in plan.cluster_secrets(plane, cluster.name, admin, authority):
            await put_secret(self._kube, secret)

    async def _data(self, name: str, namespace: str) -> dict[str, str]:
        secret = await self._kube.get(SECRETS, name, namespace)
        found: dict[str, str] = secret.get("data") or {}
        return found

    async def _tell_infrastructure(
        self, cluster: Cluster, given: Endpoint, change: dict[str, Any]
    ) -> None:
        ref = cluster.spec.infrastructure_ref
        infra = await self._refs.find(ref, cluster.namespace)
        if ref is None or infra is None:
            return
        there = (infra.get("spec") or {}).get("controlPlaneEndpoint") or {}
        if not there.get("host"):
            await self._kube.merge(self._refs.resource(ref), ref.name, change, cluster.namespace)
        elif (there["host"], there.get("port")) != (given.host, given.port):
            raise Invalid(
                f"{ref.kind} {ref.name} names the endpoint {there['host']}:{there.get('port')}, "
                f"but the control plane answers at {given.host}:{given.port}: remove one"
            )

    async def _unmake(
        self, plane: KamajiControlPlane, tenant: TenantControlPlane | None
    ) -> Outcome[ControlPlaneStatus]:
        if tenant is not None and not tenant.deleting:
            await self._kube.delete(
                TenantControlPlane, tenant.name, tenant.namespace, uid=tenant.uid
            )
        return Outcome(plan.describe(plane, tenant), again=POLL_SECONDS, settled=tenant is None)
