"""
What a node needs to know of its guest's configuration, read once and kept.

In: guests of the inventory. Out: the few facts that only a configuration has. A reading is good for
as long as the inventory shows the same guest under the VMID: the same name and shape. Whoever is
about to conclude something from a difference asks for a fresh one.
"""

import asyncio
from dataclasses import dataclass

from moxwell.controllers.cloud.identity import read_sku
from moxwell.pve import errors
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import Change, Event, GuestSeen
from moxwell.pve.regions import Region

Shape = tuple[str, float, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A guest by its configuration."""

    name: str
    uuid: str
    cores: int
    memory_mib: int
    sku: str
    dedicated: bool


class Reader:
    """Reads configurations, each once."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], tuple[Shape, Facts]] = {}
        self._locks: dict[tuple[str, int], asyncio.Lock] = {}  # two who ask at once read once

    async def read(self, region: Region, guest: GuestSeen, *, fresh: bool = False) -> Facts | None:
        """The facts of a guest; None for a container, or if it has just gone."""
        if guest.kind != "qemu":
            return None
        async with self._locks.setdefault((region.name, guest.vmid), asyncio.Lock()):
            return await self._read(region, guest, fresh)

    async def _read(self, region: Region, guest: GuestSeen, fresh: bool) -> Facts | None:
        key = (region.name, guest.vmid)
        kept = self._kept.get(key)
        if kept is not None and kept[0] == _shape(guest) and not fresh:
            return kept[1]
        try:
            config = await region.pve.qemu.config(guest.host, guest.vmid)
        except errors.GuestMissing:
            self._kept.pop(key, None)
            return None
        region.inventory.uuids.learn(guest.vmid, config)
        self._kept[key] = (_shape(guest), facts_of(config))
        return self._kept[key][1]

    def heard(self, event: Event) -> None:
        """Guests that are gone are forgotten: their VMIDs will be used again."""
        if (
            isinstance(event, Change)
            and event.after is None
            and isinstance(event.before, GuestSeen)
        ):
            self._kept.pop((event.region, event.before.vmid), None)
            self._locks.pop((event.region, event.before.vmid), None)


def facts_of(config: GuestConfig) -> Facts:
    """The facts in a configuration."""
    return Facts(
        name=config.name,
        uuid=config.uuid.lower(),
        cores=config.cores * config.sockets,
        memory_mib=config.memory_mib,
        sku=read_sku(config.smbios),
        dedicated=bool(config.get("affinity")),
    )


def _shape(guest: GuestSeen) -> Shape:
    return (guest.name, guest.cpus, guest.memory_bytes)
