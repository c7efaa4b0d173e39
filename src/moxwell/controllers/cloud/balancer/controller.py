"""The loop over Services that want an address."""

import asyncio
from collections.abc import Sequence
from typing import Any

from moxwell.api.kinds import Resource
from moxwell.controllers.cloud.balancer import plan
from moxwell.controllers.cloud.settings import Balancer
from moxwell.errors import Conflict, Invalid, MoxwellError
from moxwell.kube.client import Kube
from moxwell.pve import errors
from moxwell.pve.regions import Regions
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

NAME = "cloud.service"
SERVICES = Resource("", "v1", "services", "Service")
RETRY_SECONDS = 30.0
Json = dict[str, Any]


class CloudBalancer:
    """Gives addresses, and takes them back with the Service."""

    kind = SERVICES
    finalizer = "service.kubernetes.io/load-balancer-cleanup"
    watches: Sequence[Watch] = ()

    def __init__(self, kube: Kube, regions: Regions, settings: Balancer) -> None:
        self._kube, self._regions, self._settings = kube, regions, settings
        self._one_at_a_time = asyncio.Lock()

    async def reconcile(self, service: Json) -> Outcome[Any]:
        deleting = "deletionTimestamp" in service["metadata"]
        if deleting or not plan.is_ours(service, self._settings):
            await self._give_back(service)
            return Outcome(None, settled=True)
        if address := plan.given(service):
            return Outcome(plan.status(address))
        async with self._one_at_a_time:
            others = (await self._kube.list(SERVICES)).items
            mine = service["metadata"]["uid"]
            rest = [o for o in others if o["metadata"]["uid"] != mine]
            address, why = plan.choose(service, rest, self._settings)
            if not address:
                note = Note("SyncLoadBalancerFailed", why, "Warning")
                return Outcome(None, again=RETRY_SECONDS, notes=(note,))
            await self._reserve(service, address)
            await self._write(service, plan.change(service, address, self._settings))
        told = Note("EnsuredLoadBalancer", f"Ensured load balancer at {address}")
        return Outcome(plan.status(address), notes=(told,))

    async def _write(self, service: Json, change: Json) -> None:
        meta = service["metadata"]
        await self._kube.merge(SERVICES, meta["name"], change, meta["namespace"])

    async def _reserve(self, service: Json, address: str) -> None:
        """In PVE's IPAM the address is taken before it is used."""
        if not self._settings.vnet:
            return
        mac = plan.mac_of(service["metadata"]["uid"])
        for region in self._regions.values():
            try:
                await region.pve.sdn.reserve(
                    self._settings.vnet, zone=self._settings.zone, ip=address, mac=mac
                )
            except (errors.Exists, Conflict, Invalid) as error:
                raise Conflict(f"{address} is taken in the IPAM of {region.name}") from error

    async def _give_back(self, service: Json) -> None:
        address = plan.given(service)
        if not address or not self._settings.vnet:
            return
        mac = plan.mac_of(service["metadata"]["uid"])
        for region in self._regions.values():
            try:
                await region.pve.sdn.release(
                    self._settings.vnet, zone=self._settings.zone, ip=address, mac=mac
                )
            except errors.ObjectMissing:
                continue
            except MoxwellError as error:
                raise Conflict(f"{address} stays taken in {region.name}: {error}") from error
