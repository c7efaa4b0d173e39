"""
Checks that the guest of a node belongs to the namespace whose cluster the driver serves.

A tenant writes its Node objects, so that a provider ID proves nothing. The owner mark of the guest
names the namespace and cluster of its machine. Guests of earlier versions get it from their owner
within minutes; until then the call is repeated.
"""

from moxwell.errors import Busy, Missing
from moxwell.pve import ownership
from moxwell.pve.model import ObservedGuest
from moxwell.pve.ownership import CLUSTER_TAG_PREFIX, Foreign, cluster_key
from moxwell.pve.regions import Region


class GuestNotBound(Busy):
    """The owner mark of the guest does not name its cluster yet."""

    reason = "GuestNotBound"


class ClusterGuests:
    """The guests of the clusters in one namespace."""

    def __init__(self, namespace: str, cluster: str) -> None:
        self._namespace = namespace
        self._tag = CLUSTER_TAG_PREFIX + cluster_key(f"{namespace}/{cluster}")

    async def refuse_foreign(self, region: Region, vmid: int) -> None:
        """Raise Foreign for a guest of another namespace, or without an owner."""
        guest = region.inventory.find(vmid)
        if guest is None or self._tag in guest.tags:
            return  # the caller reports a guest that does not exist
        bound = await self._cluster(region, guest)
        if not bound and guest.owner_keys:
            raise GuestNotBound(f"guest {vmid} has no cluster in its owner mark yet; try again")
        if bound.partition("/")[0] != self._namespace:
            raise Foreign(f"guest {vmid} is not a machine of namespace {self._namespace}")

    async def _cluster(self, region: Region, guest: ObservedGuest) -> str:
        try:
            config = await region.reader.qemu.config(guest.host, guest.vmid)
        except Missing:
            return ""
        return ownership.cluster_of(config)
