"""
Cache of the guest configurations that node identities depend on. Reads only.

An entry is valid while the inventory shows the same name, CPUs and memory for the VMID. A caller
that is about to act on a mismatch asks for a fresh read.
"""

import asyncio
from dataclasses import dataclass

from moxwell.controllers.cloud.identity import read_sku
from moxwell.pve import errors
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import InventoryChange, InventoryEvent, ObservedGuest
from moxwell.pve.regions import Region

Shape = tuple[str, float, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestFacts:
    """Facts that only the configuration of a guest contains."""

    name: str
    uuid: str
    cores: int
    memory_mib: int
    sku: str
    dedicated: bool


class GuestFactsReader:
    """Reads each configuration once."""

    def __init__(self) -> None:
        self._cache: dict[tuple[str, int], tuple[Shape, GuestFacts]] = {}
        self._locks: dict[tuple[str, int], asyncio.Lock] = {}  # concurrent callers share one read

    async def read(
        self, region: Region, guest: ObservedGuest, *, fresh: bool = False
    ) -> GuestFacts | None:
        """The facts of a guest; None for a container or a guest that was just deleted."""
        if guest.kind != "qemu":
            return None
        async with self._locks.setdefault((region.name, guest.vmid), asyncio.Lock()):
            return await self._read(region, guest, fresh)

    async def _read(self, region: Region, guest: ObservedGuest, fresh: bool) -> GuestFacts | None:
        key = (region.name, guest.vmid)
        cached = self._cache.get(key)
        if cached is not None and cached[0] == _shape(guest) and not fresh:
            return cached[1]
        try:
            config = await region.reader.qemu.config(guest.host, guest.vmid)
        except errors.GuestMissing:
            self._cache.pop(key, None)
            return None
        region.inventory.uuids.learn(guest.vmid, config)
        self._cache[key] = (_shape(guest), facts_of(config))
        return self._cache[key][1]

    def inventory_changed(self, event: InventoryEvent) -> None:
        """Drop deleted guests, because their VMIDs are used again."""
        if (
            isinstance(event, InventoryChange)
            and event.after is None
            and isinstance(event.before, ObservedGuest)
        ):
            self._cache.pop((event.region, event.before.vmid), None)
            self._locks.pop((event.region, event.before.vmid), None)


def facts_of(config: GuestConfig) -> GuestFacts:
    """The facts of a configuration."""
    return GuestFacts(
        name=config.name,
        uuid=config.uuid.lower(),
        cores=config.cores * config.sockets,
        memory_mib=config.memory_mib,
        sku=read_sku(config.smbios),
        dedicated=bool(config.get("affinity")),
    )


def _shape(guest: ObservedGuest) -> Shape:
    return (guest.name, guest.cpus, guest.memory_bytes)
