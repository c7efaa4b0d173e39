"""The loop over Services that want an address."""

import asyncio
from collections.abc import Sequence
from typing import Any

from moxwell.api.core.nodes import Node
from moxwell.api.kinds import Resource
from moxwell.controllers.cloud.features import Balancer
from moxwell.controllers.cloud.service import plan
from moxwell.controllers.cloud.service.ipam import Pool, VnetIpam
from moxwell.controllers.cloud.service.plan import Grant
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
            return await self._tend(service)

    async def _others(self, service: Json) -> list[Json]:
        mine = service["metadata"]["uid"]
        rows = (await self._kube.list(SERVICES)).items
        return [o for o in rows if o["metadata"]["uid"] != mine]

    async def _tend(self, service: Json) -> Outcome[Any]:
        """An address for each IP family that it asks for, and none for another."""
        asked = plan.families(service)
        rightful = [g for g in plan.grants(service) if await self._has(service, g)]
        kept = {g.version: g for g in rightful if g.version in asked}
        missing = [v for v in asked if v not in kept]
        if not missing and len(kept) == len(plan.given(service)):
            return self._kept(service, _in_order(kept, asked), ())
        whys = await self._choose(service, missing, kept)
        if not kept or (whys and plan.needs_all(service) and not rightful):
            text = "; ".join(whys) or "the pool has no address of its IP families"
            note = Note("SyncLoadBalancerFailed", text, "Warning")
            return Outcome(None, again=RETRY_SECONDS, notes=(note,))
        told = tuple(Note("SyncLoadBalancerFailed", why, "Warning") for why in whys)
        if {g.address for g in kept.values()} == set(plan.given(service)):
            return self._kept(service, _in_order(kept, asked), told)
        return await self._give(service, _in_order(kept, asked), rightful, told)

    async def _has(self, service: Json, grant: Grant) -> bool:
        """Whether an address it bears is its own; proved once, since anybody can write a note."""
        key = (service["metadata"]["uid"], grant.address)
        if key in self._proved:
            return True
        others, free = await self._others(service), await self._ipam.look()
        good = plan.has_right(service, grant.address, others, free)
        if good and await self._ipam.reserve(grant.address, grant.mac):
            self._proved.add(key)
            return True
        return False

    async def _choose(
        self, service: Json, missing: Sequence[int], kept: dict[int, Grant]
    ) -> list[str]:
        """Choose for each missing family; answers why there is none for some."""
        others, free = await self._others(service), await self._ipam.look()
        whys = []
        for version in missing:
            found, why = plan.choose(service, version, others, free)
            if found is not None:
                kept[version] = found
            elif plan.is_missed(service, version, free):
                whys.append(why)
        return whys

    async def _give(
        self, service: Json, wanted: tuple[Grant, ...], had: Sequence[Grant], told: tuple[Note, ...]
    ) -> Outcome[Any]:
        """Reserve what is new, write all, then let go of what is no longer wanted."""
        meta = service["metadata"]
        for grant in wanted:
            if grant not in had and not await self._ipam.reserve(grant.address, grant.mac):
                raise Conflict(f"{grant.address} was taken in the IPAM a moment ago")
        change = plan.change(service, wanted, self._settings)
        left = await self._kube.merge(SERVICES, meta["name"], change, meta["namespace"])
        self._proved.update((meta["uid"], grant.address) for grant in wanted)
        await self._release(service, [g for g in had if g not in wanted])
        text = f"Ensured load balancer at {', '.join(g.address for g in wanted)}"
        return self._kept(service, wanted, (Note("EnsuredLoadBalancer", text), *told), left)

    def _kept(
        self, service: Json, given: tuple[Grant, ...], told: tuple[Note, ...], left: Any = None
    ) -> Outcome[Any]:
        if not any(plan.carries(node) for node in self._nodes.list()):
            why = "There are no available nodes for LoadBalancer"
            told = (*told, Note("UnAvailableLoadBalancer", why, "Warning"))
        return Outcome(plan.status(given), again=NODE_SYNC_SECONDS, notes=told, left=left)

    async def _release(self, service: Json, grants: Sequence[Grant]) -> None:
        """Addresses go back unless another Service shares them."""
        if not grants:
            return
        shared = {address for o in await self._others(service) for address in plan.given(o)}
        for grant in grants:
            self._proved.discard((service["metadata"]["uid"], grant.address))
            if grant.address not in shared:
                await self._ipam.release(grant.address, grant.mac)

    async def _all_of(self, service: Json) -> list[Grant]:
        """What it has by its notes, and what was reserved in passes that did not come to an end."""
        own, free = plan.mac_of(service["metadata"]["uid"]), await self._ipam.look()
        early = [Grant(found, own) for v in (4, 6) if (found := free.of(own, v))]
        return [*dict.fromkeys((*plan.grants(service), *early))]

    async def _give_back(self, service: Json) -> Outcome[Any]:
        async with self._one_at_a_time:
            await self._release(service, await self._all_of(service))
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


def _in_order(kept: dict[int, Grant], asked: Sequence[int]) -> tuple[Grant, ...]:
    return tuple(kept[v] for v in asked if v in kept)
