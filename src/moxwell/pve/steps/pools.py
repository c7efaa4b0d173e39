"""
Steps on resource pools of tenants, and on the pool of a guest.

A pool is owned by its comment; one with another comment raises ``Foreign``.
"""

from moxwell.errors import Busy
from moxwell.pve.client import PveReader, PveWriter
from moxwell.pve.effects import Owned
from moxwell.pve.endpoints.access import PoolRow
from moxwell.pve.steps.contract import (
    GuestStep,
    RegionStep,
    own_config,
    same_region,
    verify_words,
)
from moxwell.pve.values import Upid


class PoolNotEmpty(Busy):
    """A pool has members, so it is not deleted."""

    reason = "PoolNotEmpty"


class PoolStep(RegionStep, frozen=True, kw_only=True):
    """A step on the resource pool with this name and comment."""

    pool: str
    comment: str

    @property
    def owned(self) -> Owned:
        return Owned(f"comment {self.comment}", names=(self.pool,))

    async def find(self, pve: PveReader) -> PoolRow | None:
        """Return the pool, None if there is none; raises ``Foreign`` if it is another owner's."""
        same_region(pve, self.region_name)
        found = next((row for row in await pve.pools.list() if row.poolid == self.pool), None)
        if found is not None:
            verify_words(found.comment, self.comment, f"pool {self.pool} in region {self.region}")
        return found


class EnsurePool(PoolStep, frozen=True):
    """Create a resource pool."""

    async def perform(self, pve: PveWriter) -> Upid | None:
        if await self.find(pve) is None:
            await pve.pools.create(self.pool, comment=self.comment)
        return None


class DeletePool(PoolStep, frozen=True):
    """Delete an empty resource pool; Proxmox deletes its ACL entries too."""

    async def perform(self, pve: PveWriter) -> Upid | None:
        if await self.find(pve) is None:
            return None
        members = (await pve.pools.get(self.pool)).members
        if members:
            raise PoolNotEmpty(f"pool {self.pool} has {len(members)} members; it is kept")
        await pve.pools.delete(self.pool)
        return None


class SetPool(GuestStep, frozen=True, kw_only=True):
    """Make a guest a member of a resource pool; it leaves its present one."""

    pool: str

    @property
    def shared_names(self) -> tuple[str, ...]:
        return (self.pool,)

    async def perform(self, pve: PveWriter) -> Upid | None:
        await own_config(pve, self.guest)
        members = (await pve.pools.get(self.pool)).members
        if self.guest.vmid not in {member.get("vmid") for member in members}:
            await pve.pools.update(self.pool, vms=(self.guest.vmid,), allow_move=True)
        return None
