"""
Reads everything the checks need from Kubernetes, Proxmox and the tenant clusters; writes nothing.

What does not answer is recorded as an error. A kind that is not served (no IPAM provider, no
``Kubernetes``) has no objects.
"""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any, TypeVar

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.core.storage import PersistentVolume
from moxwell.api.cozystack import Kubernetes, Tenant
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import GlobalInClusterIPPool, InClusterIPPool, IPAddress, IPAddressClaim
from moxwell.api.kinds import Object, Resource
from moxwell.clock import Clock
from moxwell.errors import Missing, MoxwellError
from moxwell.kube import kubeconfig_writer
from moxwell.kube.client import Kube
from moxwell.pki.certificates import load_certificate
from moxwell.pve.regions import Regions
from moxwell.runtime.key import Key
from moxwell.runtime.tenant_clients import SECRETS, Connect, TenantClients
from moxwell.verify.model import (
    Observation,
    ObservedRegion,
    ObservedTenant,
    ObservedTenantNode,
    Validity,
)
from moxwell.verify.regions import observe_region

Json = dict[str, Any]
O = TypeVar("O", bound=Object)  # noqa: E741
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
TENANT_SECONDS = 20.0


class ObservationCollector:
    """Reads both sides."""

    def __init__(self, kube: Kube, regions: Regions, clock: Clock, connect: Connect) -> None:
        self._kube, self._regions, self._clock = kube, regions, clock
        self._tenants = TenantClients(kube, connect, clock)

    async def observe(self) -> Observation:
        """Read both sides: objects first, so that a guest created meanwhile has an owner."""
        machines = await self._list(ProxmoxMachine)
        clusters = await self._list(Cluster)
        observed: dict[str, ObservedRegion] = {}
        for region in self._regions.all():
            own = [m for m in machines if m.spec.region == region.name]
            name = region.key if region.name in observed else region.name
            observed[name] = await observe_region(region, own, self._clock)
        tenant_clusters = {
            Key(c.namespace, c.name): await self._tenant(c) for c in _initialized(clusters)
        }
        return Observation(
            now=self._clock.now(),
            regions=observed,
            tenant_clusters=tenant_clusters,
            apps=await self._list(Kubernetes),
            tenants=await self._list(Tenant),
            clusters=clusters,
            proxmox_clusters=await self._list(ProxmoxCluster),
            groups=await self._list(MachineDeployment),
            capi_machines=await self._list(Machine),
            machines=await self._list(ProxmoxMachine),
            claims=await self._list(IPAddressClaim),
            addresses=await self._list(IPAddress),
            pools=await self._pools(),
        )

    async def close(self) -> None:
        """Close the clients of the tenant clusters."""
        for cluster in await self._list(Cluster):
            await self._tenants.forget(Key(cluster.namespace, cluster.name))

    async def _list(self, kind: type[O]) -> tuple[O, ...]:
        try:
            return tuple((await self._kube.list(kind)).items)
        except Missing:
            return ()

    async def _pools(self) -> Mapping[tuple[str, str, str], Any]:
        found = {
            ("InClusterIPPool", p.namespace, p.name): p.spec
            for p in await self._list(InClusterIPPool)
        }
        for pool in await self._list(GlobalInClusterIPPool):
            found["GlobalInClusterIPPool", "", pool.name] = pool.spec
        return found

    async def _tenant(self, cluster: Cluster) -> ObservedTenant:
        key = Key(cluster.namespace, cluster.name)
        try:
            async with asyncio.timeout(TENANT_SECONDS):
                tenant = await self._tenants.find(key)
                if tenant is None:
                    return ObservedTenant(error="it has no kubeconfig yet")
                nodes = (await tenant.list(NODES)).items
                volumes = (await tenant.list(PersistentVolume)).items
                expiries = await self._certificates(key)
        except TimeoutError:
            return ObservedTenant(error=f"no answer within {TENANT_SECONDS:.0f} s")
        except MoxwellError as error:
            return ObservedTenant(error=str(error))
        return ObservedTenant("", tuple(map(_node, nodes)), tuple(volumes), expiries)

    async def _certificates(self, key: Key) -> dict[str, Validity]:
        secret = await self._kube.find(SECRETS, f"{key.name}-kubeconfig", key.namespace)
        text = base64.b64decode(((secret or {}).get("data") or {}).get("value", ""))
        found = kubeconfig_validities(text.decode(errors="replace"))
        ca = await self._kube.find(SECRETS, f"{key.name}-ca", key.namespace)
        pem = base64.b64decode(((ca or {}).get("data") or {}).get("tls.crt", ""))
        return found | ({"its CA": own} if (own := validity(pem)) else {})


def _initialized(clusters: tuple[Cluster, ...]) -> list[Cluster]:
    return [
        c for c in clusters if c.status.initialization.control_plane_initialized and not c.deleting
    ]


def _node(node: Json) -> ObservedTenantNode:
    ready = [c for c in (node.get("status") or {}).get("conditions") or () if c["type"] == "Ready"]
    return ObservedTenantNode(
        node["metadata"]["name"],
        (node.get("spec") or {}).get("providerID", ""),
        ready=bool(ready) and ready[0]["status"] == "True",
    )


def kubeconfig_validities(text: str) -> dict[str, Validity]:
    """When the certificates of a kubeconfig are valid."""
    rows = {
        "the kubeconfig's client": kubeconfig_writer.client_certificate(text),
        "the kubeconfig's CA": kubeconfig_writer.authority(text),
    }
    return {name: found for name, pem in rows.items() if pem and (found := validity(pem))}


def validity(pem: bytes) -> Validity | None:
    """When the first certificate of a PEM text is valid; None if there is none."""
    try:
        found = load_certificate(pem)
    except ValueError:
        return None
    return Validity(found.not_valid_before_utc, found.not_valid_after_utc)
