"""
Steps on SDN VNets of tenants: the VNet with its subnet, and applying the changes.

A VNet is owned by its alias; one with another alias raises ``Foreign``. Proxmox applies all pending
changes of a cluster at once, so ``ApplySdn`` refuses while changes of other people are pending.
"""

from msgspec import Struct

from moxwell.errors import Busy
from moxwell.pve.client import PveReader, PveWriter
from moxwell.pve.effects import Owned
from moxwell.pve.endpoints.sdn import SdnSubnet, SdnVnet
from moxwell.pve.steps.contract import RegionStep, same_region, verify_words
from moxwell.pve.values import Upid

SDN = "cluster/sdn"  # the target of an apply


class ForeignSdnChanges(Busy):
    """SDN changes of other people are pending; an apply would activate them too."""

    reason = "ForeignSdnChanges"


class VnetSubnet(Struct, frozen=True, kw_only=True):
    """The subnet of a VNet; ``dhcp_ranges`` as ``start-address=…,end-address=…``."""

    cidr: str
    gateway: str = ""
    snat: bool = False
    dhcp_ranges: tuple[str, ...] = ()

    def matches(self, row: SdnSubnet) -> bool:
        """Whether Proxmox has the subnet as it is wanted."""
        ranges = tuple(
            f"start-address={r.get('start-address')},end-address={r.get('end-address')}"
            for r in row.dhcp_range
        )
        found = (row.cidr, row.gateway, row.snat, sorted(ranges))
        return found == (self.cidr, self.gateway, self.snat, sorted(self.dhcp_ranges))


class VnetStep(RegionStep, frozen=True, kw_only=True):
    """A step on the VNet with this name and alias."""

    vnet: str
    alias: str

    @property
    def owned(self) -> Owned:
        return Owned(f"alias {self.alias}", names=(self.vnet,))

    async def find(self, pve: PveReader) -> SdnVnet | None:
        """Return the VNet, None if there is none; raises ``Foreign`` if it is another owner's."""
        same_region(pve, self.region_name)
        found = next((row for row in await pve.sdn.vnets() if row.vnet == self.vnet), None)
        if found is not None:
            verify_words(found.alias, self.alias, f"VNet {self.vnet} in region {self.region}")
        return found


class EnsureVnet(VnetStep, frozen=True, kw_only=True):
    """Create a VNet with its subnet, or change them; the change is pending until it is applied."""

    zone: str
    tag: int | None = None
    subnet: VnetSubnet | None = None

    async def perform(self, pve: PveWriter) -> Upid | None:
        found = await self.find(pve)
        if found is None:
            await pve.sdn.create_vnet(self.vnet, self.zone, tag=self.tag, alias=self.alias)
        elif found.tag != self.tag or found.zone != self.zone:
            await pve.sdn.update_vnet(self.vnet, zone=self.zone, tag=self.tag, alias=self.alias)
        await self._set_subnet(pve)
        return None

    async def _set_subnet(self, pve: PveWriter) -> None:
        rows = await pve.sdn.subnets(self.vnet)
        for row in rows:
            if self.subnet is None or row.cidr != self.subnet.cidr:
                await pve.sdn.delete_subnet(self.vnet, row.subnet)
        wanted = self.subnet
        if wanted is None:
            return
        known = next((row for row in rows if row.cidr == wanted.cidr), None)
        if known is None:
            await pve.sdn.create_subnet(
                self.vnet, wanted.cidr, gateway=wanted.gateway or None, snat=wanted.snat,
                dhcp_ranges=wanted.dhcp_ranges,
            )  # fmt: skip
        elif not wanted.matches(known):
            await pve.sdn.update_subnet(
                self.vnet, known.subnet, gateway=wanted.gateway or None, snat=wanted.snat,
                dhcp_ranges=wanted.dhcp_ranges,
            )  # fmt: skip


class DeleteVnet(VnetStep, frozen=True):
    """Delete a VNet with its subnets; the deletion is pending until it is applied."""

    async def perform(self, pve: PveWriter) -> Upid | None:
        if await self.find(pve) is None:
            return None
        for row in await pve.sdn.subnets(self.vnet):
            await pve.sdn.delete_subnet(self.vnet, row.subnet)
        await pve.sdn.delete_vnet(self.vnet)
        return None


class ApplySdn(RegionStep, frozen=True, kw_only=True):
    """Apply pending SDN changes if all of them are of VNets whose alias has the prefix."""

    prefix: str

    @property
    def owned(self) -> Owned:
        return Owned(f"only VNets with an alias {self.prefix}… are pending", names=(SDN,))

    async def perform(self, pve: PveWriter) -> Upid | None:
        same_region(pve, self.region_name)
        foreign = await foreign_changes(pve, self.prefix)
        if foreign:
            raise ForeignSdnChanges(
                f"pending SDN changes of others in region {self.region_name}: "
                f"{', '.join(foreign)}; apply or revert them (Datacenter, SDN)"
            )
        return await pve.sdn.apply()


async def foreign_changes(pve: PveReader, prefix: str) -> tuple[str, ...]:
    """Pending changes of zones, controllers, and VNets and subnets that are not ours."""
    found = [f"zone {row.zone}" for row in await pve.sdn.zones(pending=True) if row.state]
    found += [
        f"controller {row.controller}"
        for row in await pve.sdn.controllers(pending=True)
        if row.state
    ]
    configured = {row.vnet: row.alias for row in await pve.sdn.vnets()}
    for row in await pve.sdn.vnets(pending=True):
        alias = configured.get(row.vnet, row.alias)
        if any(word.startswith(prefix) for word in alias.split()):
            continue
        pending = bool(row.state) or (
            row.vnet in configured
            and any(s.state for s in await pve.sdn.subnets(row.vnet, pending=True))
        )
        found += [f"VNet {row.vnet}"] if pending else []
    return tuple(found)
