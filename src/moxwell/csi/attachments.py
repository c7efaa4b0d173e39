"""
The index of attachments: which guest has which volume, so that no disk is attached to two guests.

Proxmox does not refuse to attach one disk to two guests, so the driver must. The index is filled by
reading each guest's configuration once and follows the driver's own changes. Before each attach,
guests that tasks of others touched, and guests that started or moved, are read again; a background
loop reads every guest within minutes. ``reserve`` does not suspend, so of two concurrent attaches
one sees the other. The name of a local disk counts as unique in its region: it contains a UUID or
a VMID.
"""

import asyncio
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass

import structlog

from moxwell.clock import Clock
from moxwell.csi.foreign_tasks import ForeignTasks
from moxwell.csi.ids import VolumeId
from moxwell.errors import Missing, MoxwellError
from moxwell.pve import property_strings
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import ObservedGuest
from moxwell.pve.ownership import is_helper_vm
from moxwell.pve.regions import Region, Regions

MAX_CONCURRENT_READS = 8
RESCAN_SECONDS = 300.0
FILL_SECONDS = 1.0  # until the next attempt while no region has been listed
log = structlog.get_logger(__name__)
Key = tuple[str, str]  # key of the region, Proxmox volume id


@dataclass(frozen=True, slots=True)
class Attachment:
    """A guest that has a volume; without a slot, an attach that is in progress."""

    vmid: int
    slot: str = ""


class AttachmentIndex:
    """The attachments in all regions."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._attachments: dict[Key, Attachment] = {}
        self._read: dict[str, dict[int, str]] = {}  # region -> VMID -> state when it was read
        self._foreign_tasks = ForeignTasks(clock)
        self._locks: dict[str, asyncio.Lock] = {}
        self._regions: Regions | None = None

    def scoped(self, regions: Regions) -> "AttachmentIndex":
        """The same index, for volumes in the regions of one scope."""
        seen = copy(self)  # shares everything but the regions
        seen._regions = regions
        return seen

    def _region_key(self, name: str) -> str:
        """The key of a region; names of regions are unique within a scope only."""
        region = self._regions.find(name) if self._regions is not None else None
        return region.key if region is not None else name

    def _key(self, volume: VolumeId) -> Key:
        return (self._region_key(volume.region), volume.volid)

    def find(self, volume: VolumeId) -> Attachment | None:
        return self._attachments.get(self._key(volume))

    def volumes_of(self, region: str, vmid: int) -> tuple[Key, ...]:
        at = self._region_key(region)
        return tuple(k for k, a in self._attachments.items() if k[0] == at and a.vmid == vmid)

    def reserve(self, volume: VolumeId, vmid: int) -> Attachment | None:
        """Reserve a volume for a guest; returns the attachment to another guest, if any."""
        current = self._attachments.get(self._key(volume))
        if current is not None and current.vmid != vmid:
            return current
        self._attachments.setdefault(self._key(volume), Attachment(vmid))
        return None

    def set(self, volume: VolumeId, vmid: int, slot: str) -> None:
        self._attachments[self._key(volume)] = Attachment(vmid, slot)

    def remove(self, volume: VolumeId, vmid: int) -> None:
        """Record that the guest does not have the volume."""
        current = self._attachments.get(self._key(volume))
        if current is not None and current.vmid == vmid:
            del self._attachments[self._key(volume)]

    def remove_guest(self, region: str, vmid: int) -> None:
        self._read.get(self._region_key(region), {}).pop(vmid, None)
        for key in self.volumes_of(region, vmid):
            del self._attachments[key]

    async def sync(self, region: Region) -> None:
        """Read guests that are new or changed since the last call; remove deleted ones."""
        async with self._locks.setdefault(region.key, asyncio.Lock()):
            known = self._read.setdefault(region.key, {})
            changed = await self._foreign_tasks.changed_guests(region)
            guests = region.inventory.guests
            for vmid in known.keys() - guests.keys():
                self.remove_guest(region.key, vmid)
            outdated = [
                guest
                for guest in guests.values()
                if _may_have_volumes(guest)
                and (known.get(guest.vmid) != _state(guest) or guest.vmid in changed)
            ]
            semaphore = asyncio.Semaphore(MAX_CONCURRENT_READS)
            await asyncio.gather(*(self.read(region, g, semaphore) for g in outdated))

    async def read(
        self, region: Region, guest: ObservedGuest, semaphore: asyncio.Semaphore | None = None
    ) -> None:
        """Read the configuration of one guest; errors are logged and retried at the next sync."""
        async with semaphore or asyncio.Semaphore(1):
            try:
                calls = region.reader.qemu if guest.kind == "qemu" else region.reader.lxc
                config = await calls.config(guest.host, guest.vmid)
            except Missing:
                return
            except MoxwellError as error:
                log.info("guest not read", vmid=guest.vmid, error=str(error))
                return
        self.update(region, guest, config)

    def update(self, region: Region, guest: ObservedGuest, config: GuestConfig) -> None:
        """Apply the configuration of a guest; reservations in progress stay."""
        vmid = guest.vmid
        found = {} if is_helper_vm(config.tags) else dict(_volumes(region.key, config))
        for key in self.volumes_of(region.key, vmid):
            if key not in found and self._attachments[key].slot:
                del self._attachments[key]
        for key, slot in found.items():
            current = self._attachments.get(key)
            if current is None or current.vmid == vmid:
                self._attachments[key] = Attachment(vmid, slot)
            else:
                guests = [current.vmid, vmid]
                log.error("disk attached to two guests", disk=key[1], guests=guests)
        self._read.setdefault(region.key, {})[vmid] = _state(guest)

    async def rescan(self, regions: Regions, clock: Clock) -> None:
        """Read every guest at the start, then again one after the other, until cancelled."""
        while True:
            await self._fill(regions)
            seen = [
                (region, vmid) for region in regions.values() for vmid in region.inventory.guests
            ]
            for region, vmid in seen:
                guest = region.inventory.find(vmid)
                if guest is not None and _may_have_volumes(guest):
                    await self.read(region, guest)
                await clock.sleep(max(RESCAN_SECONDS / len(seen), 0.05))
            if not seen:
                await clock.sleep(FILL_SECONDS)

    async def _fill(self, regions: Regions) -> None:
        """Read the guests of regions that were not read yet, so that no attach has to."""
        for region in regions.values():
            if region.key in self._read or not region.inventory.synced:
                continue
            try:
                await self.sync(region)
            except MoxwellError as error:
                log.info("region not read", region=region.name, error=str(error))


def _may_have_volumes(guest: ObservedGuest) -> bool:
    return not guest.template and not is_helper_vm(guest.tags)


def _state(guest: ObservedGuest) -> str:
    """The state whose change causes a new read: a guest can get a disk while it is stopped."""
    return f"{guest.host} {guest.running}"


def _volumes(region: str, config: GuestConfig) -> Iterable[tuple[Key, str]]:
    for slot, text in config.disks.items():
        volid = property_strings.volume(text)
        if ":" in volid:
            yield (region, volid), slot
