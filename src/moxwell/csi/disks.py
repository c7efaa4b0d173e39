"""
The driver's disks on Proxmox storages: lists, allocates and deletes them.

Disks have the driver's VMID, which no guest has, in their names. They are listed once per host and
storage; later calls use the list and the driver's own changes. So a repeated CreateVolume finds its
disk on any host, and CreateVolume costs one request for any number of disks. Proxmox deletes a disk
that a guest uses without an error: callers check :mod:`moxwell.csi.attachments` first.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace

from moxwell.csi import steps
from moxwell.csi.ids import VolumeId, base_name
from moxwell.errors import Missing, MoxwellError
from moxwell.pve import errors
from moxwell.pve.endpoints.storage import VolumeRow
from moxwell.pve.ownership import is_helper_vm
from moxwell.pve.regions import Region

MAX_CONCURRENT, MAX_CONCURRENT_LINSTOR = 4, 1
FILE_TYPES = frozenset({"dir", "nfs", "cifs", "cephfs", "glusterfs", "btrfs"})


@dataclass(frozen=True, slots=True)
class DiskInfo:
    """An existing disk."""

    id: VolumeId
    size: int
    ctime: int = 0


class DiskStore:
    """The driver's disks in all regions."""

    def __init__(self, owner: int) -> None:
        self.owner = owner
        self._known: dict[tuple[str, str, str], dict[str, DiskInfo]] = {}  # region, host, storage
        self._semaphores: dict[tuple[str, str], asyncio.Semaphore] = {}
        self._list_locks: dict[tuple[str, str, str], asyncio.Lock] = {}

    def _semaphore(self, region: Region, storage: str, type_: str) -> asyncio.Semaphore:
        """Limit concurrent changes: a storage has a lock with a timeout in Proxmox."""
        size = MAX_CONCURRENT_LINSTOR if type_ == "drbd" else MAX_CONCURRENT
        return self._semaphores.setdefault((region.name, storage), asyncio.Semaphore(size))

    async def find(
        self, region: Region, storage: str, hosts: Iterable[str], name: str
    ) -> DiskInfo | None:
        """The disk with a file name on any of the hosts ("" for a shared storage)."""
        for host in hosts:
            found = (await self._listed(region, host, storage)).get(name)
            if found is not None:
                return found
        return None

    async def find_by_prefix(
        self, region: Region, storage: str, hosts: Iterable[str], prefix: str
    ) -> tuple[DiskInfo, ...]:
        """The disks whose file names have a prefix, on any of the hosts."""
        found: list[DiskInfo] = []
        for host in hosts:
            listed = await self._listed(region, host, storage)
            found += [disk for name, disk in listed.items() if name.startswith(prefix)]
        return tuple(found)

    async def _listed(self, region: Region, host: str, storage: str) -> dict[str, DiskInfo]:
        key = (region.name, host, storage)
        async with self._list_locks.setdefault(key, asyncio.Lock()):
            if key not in self._known:
                disks = await self.list(region, host, storage)
                self._known[key] = {base_name(d.id.disk): d for d in disks}
            return self._known[key]

    async def list(self, region: Region, host: str, storage: str) -> tuple[DiskInfo, ...]:
        """Read all disks with the driver's VMID on a storage."""
        queried = host or any_host(region, storage)
        rows = await region.reader.storage.content(
            queried, storage, vmid=self.owner, content="images"
        )
        return tuple(_disk(region.name, host, row) for row in rows if row.vmid == self.owner)

    def invalidate(self, volume: VolumeId) -> None:
        """List the storage again before its next use, after an unknown outcome."""
        self._known.pop((volume.region, volume.host, volume.storage), None)

    def add(self, disk: DiskInfo) -> None:
        """Record a disk that was created."""
        listed = self._known.get((disk.id.region, disk.id.host, disk.id.storage))
        if listed is not None:
            listed[base_name(disk.id.disk)] = disk

    def discard(self, volume: VolumeId) -> None:
        """Record that a disk does not exist."""
        listed = self._known.get((volume.region, volume.host, volume.storage))
        if listed is not None:
            listed.pop(base_name(volume.disk), None)

    async def read(self, region: Region, volume: VolumeId) -> DiskInfo:
        """Read one disk from Proxmox; raises Missing."""
        host = host_of(region, volume)
        if volume.host and volume.host not in region.inventory.hosts:
            raise Missing(f"host {volume.host} does not exist in region {region.name}")
        seen = await region.reader.storage.volume(host, volume.storage, volume.volid)
        return DiskInfo(volume, seen.size)

    async def allocate(
        self, region: Region, host: str, volume: VolumeId, size: int, *, owner: int = 0
    ) -> DiskInfo:
        """Allocate an empty disk; an existing disk is returned unchanged."""
        storage = region.inventory.storage(host, volume.storage)
        type_ = storage.type if storage else ""
        name, vmid = volume.disk, owner or self.owner
        is_file = type_ in FILE_TYPES
        step = steps.AllocateDisk(
            volume=volume,
            host=host,
            vmid_in_name=vmid,
            size=size,
            format=name.rpartition(".")[2] if is_file and "." in name else "",
        )
        async with self._semaphore(region, volume.storage, type_):
            try:
                volid = await step.allocate(region.writer(step.owned))
            except errors.Exists:
                existing = replace(volume, disk=f"{vmid}/{name}" if is_file else name)
                seen = await region.reader.storage.volume(host, existing.storage, existing.volid)
                return DiskInfo(existing, seen.size)
            except MoxwellError:
                self.invalidate(volume)
                raise
        disk = DiskInfo(replace(volume, disk=volid.partition(":")[2]), size)
        self.add(disk)
        return disk

    async def delete(self, region: Region, volume: VolumeId, *, owner: int = 0) -> None:
        """Delete a disk; a missing disk is not an error. ``owner``: VMID of a deleted guest."""
        host = host_of(region, volume)
        storage = region.inventory.storage(host, volume.storage)
        step = steps.DeleteDisk(volume=volume, host=host, vmid_in_name=owner or self.owner)
        failure: errors.PveError | None = None
        async with self._semaphore(region, volume.storage, storage.type if storage else ""):
            try:
                await steps.run(region, step)
            except errors.OutcomeUnknown:
                raise
            except errors.PveError as error:
                failure = error
        if failure is not None and await self._exists(region, volume):
            raise failure
        self.discard(volume)

    async def _exists(self, region: Region, volume: VolumeId) -> bool:
        try:
            await self.read(region, volume)
        except Missing:
            return False
        return True


def any_host(region: Region, storage: str) -> str:
    """An online host with a storage."""
    for (host, name), seen in sorted(region.inventory.storages.items()):
        online = region.inventory.hosts.get(host)
        if name == storage and seen.available and online is not None and online.online:
            return host
    raise Missing(f"no online host of region {region.name} has storage {storage!r}")


def host_of(region: Region, volume: VolumeId) -> str:
    """A host with a volume: its own, that of its replicated helper VM, or any with the storage."""
    if volume.host:
        return volume.host
    guest = region.inventory.find(volume.owner)
    if guest is not None and is_helper_vm(guest.tags):
        seen = region.inventory.storage(guest.host, volume.storage)
        if seen is not None and not seen.shared:
            return guest.host
    return any_host(region, volume.storage)


def storage_type(region: Region, volume: VolumeId) -> str:
    """The type of a volume's storage; empty if no host has the storage."""
    for (host, name), seen in region.inventory.storages.items():
        if name == volume.storage and volume.host in ("", host):
            return seen.type
    return ""


def _disk(region: str, host: str, row: VolumeRow) -> DiskInfo:
    storage, _, disk = row.volid.partition(":")
    return DiskInfo(VolumeId(region, host, storage, disk), row.size, row.ctime or 0)
