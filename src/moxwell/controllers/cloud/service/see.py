"""Reads what the addresses of a Service depend on: other Services, the pool or IPAM, the nodes."""

from collections.abc import Sequence
from typing import Any

from moxwell.api.core.nodes import Node
from moxwell.api.kinds import Resource
from moxwell.controllers.cloud.features import LoadBalancerFeatures
from moxwell.controllers.cloud.service import allocation
from moxwell.controllers.cloud.service.allocation import AddressAllocation
from moxwell.controllers.cloud.service.ipam import AvailableAddresses, StaticPool, VnetPool
from moxwell.controllers.cloud.service.plan import ObservedService, is_complete
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache

SERVICES = Resource("", "v1", "services", "Service")
Json = dict[str, Any]


class CloudServiceObserver:
    """
    Reads Services.

    Verified addresses of a Service are remembered, so that a Service whose addresses are complete
    costs no request.
    """

    def __init__(
        self, pool: StaticPool | VnetPool, settings: LoadBalancerFeatures, nodes: Cache[Node]
    ) -> None:
        self._pool, self._settings, self._nodes = pool, settings, nodes
        self._verified: dict[str, frozenset[str]] = {}  # uid -> addresses

    async def see(self, service: Json, reader: Reader) -> ObservedService:
        """The Service's own addresses and, unless they are complete, everything it may get."""
        uid, listed = service["metadata"]["uid"], allocation.allocations(service)
        has_nodes = any(allocation.may_carry_traffic(node) for node in self._nodes.list())
        known = [a for a in listed if a.address in self._verified.get(uid, ())]
        if self._is_kept(service) and is_complete(service, known):
            return ObservedService(owned=tuple(known), has_nodes=has_nodes)
        rows = (await reader.list(SERVICES)).items
        others = tuple(o for o in rows if o["metadata"]["uid"] != uid)
        available = await self._pool.read()
        owned = tuple(a for a in listed if _is_own(service, a, others, available))
        self._remember(service, [a for a in owned if _is_settled(a, available)])
        return ObservedService(owned=owned, others=others, available=available, has_nodes=has_nodes)

    def _is_kept(self, service: Json) -> bool:
        deleting = "deletionTimestamp" in service["metadata"]
        return not deleting and allocation.has_our_class(service, self._settings)

    def _remember(self, service: Json, verified: Sequence[AddressAllocation]) -> None:
        uid = service["metadata"]["uid"]
        self._verified.pop(uid, None)
        if self._is_kept(service) and verified:
            self._verified[uid] = frozenset(a.address for a in verified)


def _is_own(
    service: Json,
    allocated: AddressAllocation,
    others: Sequence[Json],
    available: AvailableAddresses,
) -> bool:
    """Whether the Service owns an address, and nobody else has reserved it."""
    if not allocation.owns_address(service, allocated.address, others, available):
        return False
    free = allocated.address not in available.reserved
    return free or available.is_reserved_for(allocated.mac, allocated.address)


def _is_settled(allocated: AddressAllocation, available: AvailableAddresses) -> bool:
    """Whether the address needs no reservation, or has one."""
    return not available.region or available.is_reserved_for(allocated.mac, allocated.address)
