"""The loop over Services that want an address."""

import asyncio
from collections.abc import Sequence
from typing import Any

from moxwell.api.core.nodes import Node
from moxwell.api.kinds import Resource
from moxwell.controllers.cloud.balancer import plan
from moxwell.controllers.cloud.balancer.ipam import Pool, VnetIpam
from moxwell.controllers.cloud.settings import Balancer
from moxwell.errors import Conflict
from moxwell.kube.client import Kube
from moxwell.runtime import finalizer
from moxwell.runtime.cache import Cache
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

NAME = "cloud.service"
SERVICES = Resource("", "v1", "services", "Service")
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
RETRY_SECONDS = 30.0
NODE_SYNC_SECONDS = 100.0
Json = dict[str, Any]


class CloudBalancer:
    """Gives addresses, and takes them back with the Service."""

    kind = SERVICES
    finalizer = FINALIZER
    watches: Sequence[Watch] = ()

    def __init__(
        self, kube: Kube, ipam: Pool | VnetIpam, settings: Balancer, nodes: Cache[Node]
    ) -> None:
        self._kube, self._ipam, self._settings, self._nodes = kube, ipam, settings, nodes
        self._one_at_a_time = asyncio.Lock()
        self._proved: set[tuple[str, str]] = set()  # uid and address, seen to belong together

    def concerns(self, service: Json) -> bool:
        """Whether a Service is any of our business; no other ever gets our finalizer."""
        return plan.concerns(service, self._settings)

    async def reconcile(self, service: Json) -> Outcome[Any]:
        if "deletionTimestamp" in service["metadata"]:
            return await self._give_back(service)
        if not plan.is_ours(service, self._settings):
            return await self._let_go(service)
        async with self._one_at_a_time:
            if await self._has(service):
                return self._kept(service, plan.given(service), ())
            return await self._give(service)

    async def _others(self, service: Json) -> list[Json]:
        mine = service["metadata"]["uid"]
        rows = (await self._kube.list(SERVICES)).items
        return [o for o in rows if o["metadata"]["uid"] != mine]

    async def _has(self, service: Json) -> bool:
        """Whether the address it bears is its own; proved once, since anybody can write a note."""
        address = plan.given(service)
        key = (service["metadata"]["uid"], address)
        if not address or key in self._proved:
            return bool(address)
        good = plan.has_right(service, await self._others(service), await self._ipam.look())
        if good and await self._ipam.reserve(address, plan.mac(service)):
            self._proved.add(key)
            return True
        return False

    async def _give(self, service: Json) -> Outcome[Any]:
        others, free = await self._others(service), await self._ipam.look()
        address, mac, why = plan.choose(service, others, free)
        if not address:
            note = Note("SyncLoadBalancerFailed", why, "Warning")
            return Outcome(None, again=RETRY_SECONDS, notes=(note,))
        if not await self._ipam.reserve(address, mac):
            raise Conflict(f"{address} was taken in the IPAM a moment ago")
        meta, change = service["metadata"], plan.change(service, address, mac, self._settings)
        left = await self._kube.merge(SERVICES, meta["name"], change, meta["namespace"])
        self._proved.add((meta["uid"], address))
        told = Note("EnsuredLoadBalancer", f"Ensured load balancer at {address}")
        return self._kept(service, address, (told,), left)

    def _kept(
        self, service: Json, address: str, told: tuple[Note, ...], left: Any = None
    ) -> Outcome[Any]:
        if not any(plan.carries(node) for node in self._nodes.list()):
            why = "There are no available nodes for LoadBalancer"
            told = (*told, Note("UnAvailableLoadBalancer", why, "Warning"))
        return Outcome(plan.status(address), again=NODE_SYNC_SECONDS, notes=told, left=left)

    async def _release(self, service: Json) -> None:
        """The address goes back unless another Service shares it."""
        address = plan.given(service) or (await self._ipam.look()).of(plan.mac(service))
        self._proved.discard((service["metadata"]["uid"], address))
        others = await self._others(service)
        if address and not any(plan.given(o) == address for o in others):
            await self._ipam.release(address, plan.mac(service))

    async def _give_back(self, service: Json) -> Outcome[Any]:
        async with self._one_at_a_time:
            await self._release(service)
        told = Note("DeletedLoadBalancer", "Deleted load balancer")
        return Outcome(None, settled=True, notes=(told,))

    async def _let_go(self, service: Json) -> Outcome[Any]:
        """It is no longer a load balancer of ours: nothing of us stays on it."""
        await self._give_back(service)
        meta, empty = service["metadata"], {"status": {"loadBalancer": {"ingress": None}}}
        left = await self._kube.merge(
            SERVICES, meta["name"], plan.undoing(service), meta["namespace"]
        )
        if service["spec"].get("type") == "LoadBalancer":
            await self._kube.merge_status(SERVICES, meta["name"], empty, meta["namespace"])
        left = await finalizer.remove(self._kube, SERVICES, left, FINALIZER)
        return Outcome(None, left=left)
