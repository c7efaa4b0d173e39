"""
Which disks exist, and making and removing them.

In: names on storages. Out: what is there, what was made. The disks of the driver's fictitious owner
are listed once per host and storage, when a storage is first used; from then on the driver knows
what it made itself. So a create that is repeated after a crash finds its disk on whatever host it
was made, and a create costs one request however many disks there are. The surprise: Proxmox deletes
a disk that a guest still uses without asking; nobody may come here before the holders were asked.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace

from moxwell.csi.ids import VolumeId
from moxwell.errors import Missing, MoxwellError
from moxwell.pve import errors
from moxwell.pve.endpoints.storage import Volume
from moxwell.pve.ownership import SHELL_TAG
from moxwell.pve.regions import Region

AT_ONCE, AT_ONCE_LINSTOR = 4, 1
SERVER_WAITS_SECONDS = 30
FILE_TYPES = frozenset({"dir", "nfs", "cifs", "cephfs", "glusterfs", "btrfs"})


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk that exists."""

    id: VolumeId
    size: int
    ctime: int = 0


class Stock:
    """The driver's disks in all regions."""

    def __init__(self, owner: int) -> None:
        self.owner = owner
        self._known: dict[tuple[str, str, str], dict[str, Disk]] = {}  # region, host or "", storage
        self._gates: dict[tuple[str, str], asyncio.Semaphore] = {}
        self._lists: dict[tuple[str, str, str], asyncio.Lock] = {}

    def _gate(self, region: Region, storage: str, type_: str) -> asyncio.Semaphore:
        """Storages lock themselves; too many waiting at once run into Proxmox's own timeouts."""
        size = AT_ONCE_LINSTOR if type_ == "drbd" else AT_ONCE
        return self._gates.setdefault((region.name, storage), asyncio.Semaphore(size))

    async def find(
        self, region: Region, storage: str, hosts: Iterable[str], name: str
    ) -> Disk | None:
        """The disk of this name (without folder) on any of the hosts ("" for a shared storage)."""
        for host in hosts:
            found = (await self._shelf(region, host, storage)).get(name)
            if found is not None:
                return found
        return None

    async def starting(
        self, region: Region, storage: str, hosts: Iterable[str], prefix: str
    ) -> Disk | None:
        """A disk whose name begins so."""
        for host in hosts:
            for name, disk in (await self._shelf(region, host, storage)).items():
                if name.startswith(prefix):
                    return disk
        return None

    async def _shelf(self, region: Region, host: str, storage: str) -> dict[str, Disk]:
        key = (region.name, host, storage)
        async with self._lists.setdefault(key, asyncio.Lock()):
            if key not in self._known:
                disks = await self.list(region, host, storage)
                self._known[key] = {base_name(d.id.disk): d for d in disks}
            return self._known[key]

    async def list(self, region: Region, host: str, storage: str) -> tuple[Disk, ...]:
        """Everything of our owner there, asked freshly; sizes and times included."""
        asked = host or any_host(region, storage)
        rows = await region.pve.storage.content(asked, storage, vmid=self.owner, content="images")
        return tuple(_disk(region.name, host, row) for row in rows if row.vmid == self.owner)

    def forget(self, volume: VolumeId) -> None:
        """Something happened that we do not know the end of: list again before the next use."""
        self._known.pop((volume.region, volume.host, volume.storage), None)

    def learn(self, disk: Disk) -> None:
        shelf = self._known.get((disk.id.region, disk.id.host, disk.id.storage))
        if shelf is not None:
            shelf[base_name(disk.id.disk)] = disk

    def unlearn(self, volume: VolumeId) -> None:
        shelf = self._known.get((volume.region, volume.host, volume.storage))
        if shelf is not None:
            shelf.pop(base_name(volume.disk), None)

    async def look(self, region: Region, volume: VolumeId) -> Disk:
        """One disk, asked freshly; raises Missing."""
        host = host_of(region, volume)
        if volume.host and volume.host not in region.inventory.hosts:
            raise Missing(f"there is no host {volume.host} in region {region.name}")
        seen = await region.pve.storage.volume(host, volume.storage, volume.volid)
        return Disk(volume, seen.size)

    async def make(
        self, region: Region, host: str, wanted: VolumeId, size: int, *, owner: int = 0
    ) -> Disk:
        """An empty disk; one that exists already is answered as it is."""
        storage = region.inventory.storage(host, wanted.storage)
        type_ = storage.type if storage else ""
        name = wanted.disk
        format_ = name.rpartition(".")[2] if type_ in FILE_TYPES and "." in name else None
        async with self._gate(region, wanted.storage, type_):
            try:
                volid = await region.pve.storage.allocate(
                    host,
                    wanted.storage,
                    vmid=owner or self.owner,
                    filename=name,
                    size=str(size // 1024),
                    format=format_,
                )
            except errors.Exists:
                folder = f"{owner or self.owner}/" if type_ in FILE_TYPES else ""
                there = replace(wanted, disk=folder + name)
                seen = await region.pve.storage.volume(host, there.storage, there.volid)
                return Disk(there, seen.size)
            except MoxwellError:
                self.forget(wanted)
                raise
        disk = Disk(replace(wanted, disk=volid.partition(":")[2]), size)
        self.learn(disk)
        return disk

    async def remove(self, region: Region, volume: VolumeId) -> None:
        """Delete a disk; one that is not there is gone already."""
        host = host_of(region, volume)
        storage = region.inventory.storage(host, volume.storage)
        async with self._gate(region, volume.storage, storage.type if storage else ""):
            try:
                upid = await region.pve.storage.delete(
                    host, volume.storage, volume.volid, delay_seconds=SERVER_WAITS_SECONDS
                )
                failure = (await region.tasks.wait_ended(upid)).error if upid else None
            except errors.Uncertain:
                raise
            except errors.PveError as error:
                failure = error
        if failure is not None and await self._is_there(region, volume):
            raise failure
        self.unlearn(volume)

    async def _is_there(self, region: Region, volume: VolumeId) -> bool:
        try:
            await self.look(region, volume)
        except Missing:
            return False
        return True


def base_name(disk: str) -> str:
    return disk.rpartition("/")[2]


def any_host(region: Region, storage: str) -> str:
    """A host that is up and sees a storage."""
    for (host, name), seen in sorted(region.inventory.storages.items()):
        online = region.inventory.hosts.get(host)
        if name == storage and seen.available and online is not None and online.online:
            return host
    raise Missing(f"no host of region {region.name} has a storage {storage!r}")


def host_of(region: Region, volume: VolumeId) -> str:
    """A host that has a volume: its own, its carrier's if replicated, else any that sees it."""
    if volume.host:
        return volume.host
    guest = region.inventory.find(volume.owner)
    if guest is not None and SHELL_TAG in guest.tags:
        seen = region.inventory.storage(guest.host, volume.storage)
        if seen is not None and not seen.shared:
            return guest.host
    return any_host(region, volume.storage)


def type_of(region: Region, volume: VolumeId) -> str:
    """The type of the storage that a volume lies on; empty if no host has it."""
    for (host, name), seen in region.inventory.storages.items():
        if name == volume.storage and volume.host in ("", host):
            return seen.type
    return ""


def _disk(region: str, host: str, row: Volume) -> Disk:
    storage, _, disk = row.volid.partition(":")
    return Disk(VolumeId(region, host, storage, disk), row.size, row.ctime or 0)
