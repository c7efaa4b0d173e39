"""
Steps on the IPAM of an SDN vnet: reserve and release an address for a MAC address.

The MAC address is the owner: an address that has another one is never released.
"""

from moxwell.pve import errors
from moxwell.pve.client import PveWriter
from moxwell.pve.effects import Owned
from moxwell.pve.steps.contract import RegionStep, same_region
from moxwell.pve.values import Upid


class VnetAddressStep(RegionStep, frozen=True, kw_only=True):
    """A step on one address of a vnet."""

    vnet: str
    zone: str
    ip: str
    mac: str

    @property
    def owned(self) -> Owned:
        return Owned(f"MAC address {self.mac}", names=(self.vnet,))


class ReserveVnetAddress(VnetAddressStep, frozen=True):
    """Reserve an address; raises ``Exists`` if it is reserved already, by whomever."""

    async def perform(self, pve: PveWriter) -> Upid | None:
        same_region(pve, self.region_name)
        await pve.sdn.reserve(self.vnet, zone=self.zone, ip=self.ip, mac=self.mac)
        return None


class ReleaseVnetAddress(VnetAddressStep, frozen=True, kw_only=True):
    """Release an address if its MAC address is still the owner's."""

    ipam: str

    async def perform(self, pve: PveWriter) -> Upid | None:
        same_region(pve, self.region_name)
        entries = await pve.sdn.leases(self.ipam)
        if not any(self._is_own(e.zone, e.ip, e.mac) for e in entries):
            return None
        try:
            await pve.sdn.release(self.vnet, zone=self.zone, ip=self.ip, mac=self.mac)
        except errors.ObjectMissing:
            return None
        return None

    def _is_own(self, zone: str, ip: str, mac: str) -> bool:
        plain = ip.partition("/")[0]
        return (zone, plain, mac.lower()) == (self.zone, self.ip, self.mac.lower())
