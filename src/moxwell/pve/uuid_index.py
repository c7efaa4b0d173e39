"""
Index of guests by SMBIOS UUID, filled on demand.

The UUID is only in each guest's configuration, so the first search reads every configuration and
later ones read none. A search returns a VMID, None if certainly no guest has the UUID, or an error
if some guests could not be read.
"""

import asyncio
from collections.abc import Sequence

from moxwell.errors import MoxwellError, Unreachable
from moxwell.pve.client import PveReader
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import InventoryView, ObservedGuest

AT_ONCE = 8


class UuidIndex:
    """The UUID index of one region."""

    def __init__(self, pve: PveReader) -> None:
        self._pve = pve
        self._by_vmid: dict[int, str] = {}
        self._by_uuid: dict[str, int] = {}
        self._lock = asyncio.Lock()

    def learn(self, vmid: int, config: GuestConfig) -> None:
        """Add the UUID of a configuration that was read."""
        self._forget(vmid)
        if config.uuid:
            self._by_uuid[config.uuid] = vmid
        self._by_vmid[vmid] = config.uuid

    def of(self, vmid: int) -> str | None:
        """Return the UUID of a guest, if it is known."""
        return self._by_vmid.get(vmid)

    def forget_absent(self, view: InventoryView) -> None:
        """Remove guests that no longer exist, because their VMIDs are used again."""
        for vmid in self._by_vmid.keys() - view.guests.keys():
            self._forget(vmid)

    def _forget(self, vmid: int) -> None:
        uuid = self._by_vmid.pop(vmid, None)
        if uuid and self._by_uuid.get(uuid) == vmid:
            del self._by_uuid[uuid]

    async def find(self, uuid: str, view: InventoryView) -> int | None:
        """Return the VMID of the guest with this UUID."""
        wanted = uuid.lower()
        async with self._lock:
            if wanted in self._by_uuid:
                return self._by_uuid[wanted]
            unread = [
                guest
                for guest in view.guests.values()
                if guest.kind == "qemu" and guest.vmid not in self._by_vmid
            ]
            return await self._search(wanted, unread)

    async def _search(self, wanted: str, unread: Sequence[ObservedGuest]) -> int | None:
        unreadable: list[int] = []
        for start in range(0, len(unread), AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for guest in unread[start : start + AT_ONCE]:
                    group.create_task(self._read(guest, unreadable))
            if wanted in self._by_uuid:
                return self._by_uuid[wanted]
        if unreadable:
            raise Unreachable(
                f"region {self._pve.region}: no readable guest has UUID {wanted}, but "
                f"{len(unreadable)} could not be read (VMID {unreadable[0]} first)"
            )
        return None

    async def _read(self, guest: ObservedGuest, unreadable: list[int]) -> None:
        try:
            config = await self._pve.qemu.config(guest.host, guest.vmid)
        except MoxwellError:  # a missing guest may have migrated; the next view shows it
            unreadable.append(guest.vmid)
            return
        self.learn(guest.vmid, config)
