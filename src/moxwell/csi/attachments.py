"""
Who holds which volume: an index from volume to guest, so that no disk gets two masters.

In: one reading of each guest's configuration, everything this driver does afterwards, and what
others did: before each attach the list of tasks tells whose guests they touched, a guest that
started or moved is read again, and a patrol reads every guest anew within minutes. Out: the holder
of a volume, at once. Taking and giving back a claim are plain calls without a pause in them, so of
two attaches that race one sees the other. The surprise: Proxmox lets two guests have one disk
without a word; the only one who can refuse is whoever asks. (A local disk's name is taken to be
unique in its region: it carries a UUID or a guest's id.)
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from moxwell.clock import Clock
from moxwell.csi.foreign_tasks import News
from moxwell.csi.ids import VolumeId
from moxwell.errors import Missing, MoxwellError
from moxwell.pve import property_strings
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import GuestSeen
from moxwell.pve.ownership import SHELL_TAG
from moxwell.pve.regions import Region, Regions

READERS = 8
PATROL_SECONDS = 300.0
log = structlog.get_logger(__name__)
Key = tuple[str, str]  # region, volume id of Proxmox


@dataclass(frozen=True, slots=True)
class Holding:
    """A guest that has a volume, or is about to."""

    vmid: int
    slot: str = ""


def key_of(volume: VolumeId) -> Key:
    return (volume.region, volume.volid)


class Holders:
    """The index; one for all regions."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._held: dict[Key, Holding] = {}
        self._read: dict[str, dict[int, str]] = {}  # region -> vmid -> as it was when read
        self._news = News(clock)
        self._locks: dict[str, asyncio.Lock] = {}

    def find(self, volume: VolumeId) -> Holding | None:
        return self._held.get(key_of(volume))

    def on(self, region: str, vmid: int) -> tuple[Key, ...]:
        return tuple(k for k, h in self._held.items() if k[0] == region and h.vmid == vmid)

    def claim(self, volume: VolumeId, vmid: int) -> Holding | None:
        """Take a volume for a guest; answers whoever else has it, and then takes nothing."""
        held = self._held.get(key_of(volume))
        if held is not None and held.vmid != vmid:
            return held
        self._held.setdefault(key_of(volume), Holding(vmid))
        return None

    def put(self, volume: VolumeId, vmid: int, slot: str) -> None:
        self._held[key_of(volume)] = Holding(vmid, slot)

    def drop(self, volume: VolumeId, vmid: int) -> None:
        """The guest does not have it (any more)."""
        held = self._held.get(key_of(volume))
        if held is not None and held.vmid == vmid:
            del self._held[key_of(volume)]

    def forget_guest(self, region: str, vmid: int) -> None:
        self._read.get(region, {}).pop(vmid, None)
        for key in self.on(region, vmid):
            del self._held[key]

    async def sync(self, region: Region) -> None:
        """Read the guests that are new or were touched since; forget those that are gone."""
        async with self._locks.setdefault(region.name, asyncio.Lock()):
            known = self._read.setdefault(region.name, {})
            touched = await self._news.changed(region)
            guests = region.inventory.guests
            for vmid in known.keys() - guests.keys():
                self.forget_guest(region.name, vmid)
            fresh = [
                guest
                for guest in guests.values()
                if _may_hold(guest)
                and (known.get(guest.vmid) != _state(guest) or guest.vmid in touched)
            ]
            gate = asyncio.Semaphore(READERS)
            await asyncio.gather(*(self.look(region, g, gate) for g in fresh))

    async def look(
        self, region: Region, guest: GuestSeen, gate: asyncio.Semaphore | None = None
    ) -> None:
        """Read one guest; one that cannot be read is tried again next time."""
        async with gate or asyncio.Semaphore(1):
            try:
                calls = region.pve.qemu if guest.kind == "qemu" else region.pve.lxc
                config = await calls.config(guest.host, guest.vmid)
            except Missing:
                return
            except MoxwellError as error:
                log.info("guest not readable", vmid=guest.vmid, error=str(error))
                return
        self.learn(region, guest, config)

    def learn(self, region: Region, guest: GuestSeen, config: GuestConfig) -> None:
        """What a guest's configuration says; a claim that is under way stays."""
        vmid = guest.vmid
        found = dict(_volumes(region.name, config)) if not is_shell(config) else {}
        for key in self.on(region.name, vmid):
            if key not in found and self._held[key].slot:
                del self._held[key]
        for key, slot in found.items():
            held = self._held.get(key)
            if held is None or held.vmid == vmid:
                self._held[key] = Holding(vmid, slot)
            else:
                log.error("two guests name one disk", disk=key[1], guests=[held.vmid, vmid])
        self._read.setdefault(region.name, {})[vmid] = _state(guest)

    async def patrol(self, regions: Regions, clock: Clock) -> None:
        """Read every guest anew, one after the other, in rounds; for as long as it runs."""
        while True:
            seen = [
                (region, vmid) for region in regions.values() for vmid in region.inventory.guests
            ]
            for region, vmid in seen:
                guest = region.inventory.find(vmid)
                if guest is not None and _may_hold(guest):
                    await self.look(region, guest)
                await clock.sleep(max(PATROL_SECONDS / len(seen), 0.05))
            if not seen:
                await clock.sleep(PATROL_SECONDS)


def _may_hold(guest: GuestSeen) -> bool:
    return not guest.template and SHELL_TAG not in guest.tags


def _state(guest: GuestSeen) -> str:
    """What is read anew when it changes: a disk given to a stopped guest shows when it starts."""
    return f"{guest.host} {guest.running}"


def is_shell(config: GuestConfig) -> bool:
    """A guest that never runs: it only carries a replicated volume from host to host."""
    return SHELL_TAG in config.tags


def _volumes(region: str, config: GuestConfig) -> Iterable[tuple[Key, str]]:
    for slot, text in config.disks.items():
        volid = property_strings.volume(text)
        if ":" in volid:
            yield (region, volid), slot
