"""
Looking at both sides: every read that the checks need, and not one write.

In flow a client of the management API, the regions and a way into tenants; out flows a
:class:`World`. What does not answer is noted as such. A kind that is not served (no Cluster API
IPAM, no ``Kubernetes``) has simply no objects.
"""

import asyncio
import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import yaml
from cryptography import x509

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.core.storage import PersistentVolume
from moxwell.api.cozystack import Kubernetes, Tenant
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import GlobalInClusterIPPool, InClusterIPPool, IPAddress, IPAddressClaim
from moxwell.api.kinds import Object
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.tenant_clients import SECRETS, Dial, Tenants
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.errors import Missing, MoxwellError
from moxwell.kube.client import Kube
from moxwell.pve.regions import Regions
from moxwell.runtime.key import Key
from moxwell.verify.model import InsideWorld, NodeSeen, RegionWorld, World
from moxwell.verify.regions import look_at

Json = dict[str, Any]
O = TypeVar("O", bound=Object)  # noqa: E741
INSIDE_SECONDS = 20.0


class Gatherer:
    """Looks at everything, as often as asked."""

    def __init__(self, kube: Kube, regions: Regions, clock: Clock, dial: Dial) -> None:
        self._kube, self._regions, self._clock = kube, regions, clock
        self._tenants = Tenants(kube, dial, clock)

    async def look(self) -> World:
        """One look at both sides; objects first, so that what is made meanwhile has an owner."""
        machines = await self._list(ProxmoxMachine)
        clusters = await self._list(Cluster)
        seen: dict[str, RegionWorld] = {}
        for region in self._regions.values():
            mine = [m for m in machines if m.spec.region == region.name]
            seen[region.name] = await look_at(region, mine, self._clock)
        inside = {Key(c.namespace, c.name): await self._inside(c) for c in _up(clusters)}
        return World(
            now=self._clock.now(),
            regions=seen,
            inside=inside,
            apps=await self._list(Kubernetes),
            tenants=await self._list(Tenant),
            clusters=clusters,
            grounds=await self._list(ProxmoxCluster),
            groups=await self._list(MachineDeployment),
            owners=await self._list(Machine),
            machines=await self._list(ProxmoxMachine),
            claims=await self._list(IPAddressClaim),
            addresses=await self._list(IPAddress),
            pools=await self._pools(),
        )

    async def close(self) -> None:
        """Let go of the tenants."""
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

    async def _inside(self, cluster: Cluster) -> InsideWorld:
        key = Key(cluster.namespace, cluster.name)
        try:
            async with asyncio.timeout(INSIDE_SECONDS):
                tenant = await self._tenants.find(key)
                if tenant is None:
                    return InsideWorld(error="it has no kubeconfig yet")
                nodes = (await tenant.list(NODES)).items
                volumes = (await tenant.list(PersistentVolume)).items
                ends = await self._certificates(key)
        except TimeoutError:
            return InsideWorld(error=f"no answer within {INSIDE_SECONDS:.0f} s")
        except MoxwellError as error:
            return InsideWorld(error=str(error))
        return InsideWorld("", tuple(map(_node, nodes)), tuple(volumes), ends)

    async def _certificates(self, key: Key) -> dict[str, datetime]:
        secret = await self._kube.find(SECRETS, f"{key.name}-kubeconfig", key.namespace)
        text = base64.b64decode(((secret or {}).get("data") or {}).get("value", ""))
        found = ends_of_kubeconfig(text)
        authority = await self._kube.find(SECRETS, f"{key.name}-ca", key.namespace)
        pem = base64.b64decode(((authority or {}).get("data") or {}).get("tls.crt", ""))
        return found | ({"its authority": at} if (at := end_of(pem)) else {})


def _up(clusters: tuple[Cluster, ...]) -> list[Cluster]:
    return [
        c for c in clusters if c.status.initialization.control_plane_initialized and not c.deleting
    ]


def _node(node: Json) -> NodeSeen:
    said = [c for c in (node.get("status") or {}).get("conditions") or () if c["type"] == "Ready"]
    return NodeSeen(
        node["metadata"]["name"],
        (node.get("spec") or {}).get("providerID", ""),
        ready=bool(said) and said[0]["status"] == "True",
    )


def ends_of_kubeconfig(text: bytes) -> dict[str, datetime]:
    """When the certificates in a kubeconfig end."""
    tree = yaml.safe_load(text) or {}
    rows = {
        "the kubeconfig's client": _data(tree, "users", "user", "client-certificate-data"),
        "the kubeconfig's authority": _data(
            tree, "clusters", "cluster", "certificate-authority-data"
        ),
    }
    return {name: at for name, pem in rows.items() if (at := end_of(pem))}


def _data(tree: Json, many: str, one: str, key: str) -> bytes:
    rows = tree.get(many) or [{}]
    return base64.b64decode((rows[0].get(one) or {}).get(key, ""))


def end_of(pem: bytes) -> datetime | None:
    """When the first certificate of a PEM text ends; None where there is none."""
    try:
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc.astimezone(UTC)
    except ValueError:
        return None
