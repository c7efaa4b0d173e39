"""
Snapshots: full copies of a disk on its own storage.

In: a source volume and a name. Out: a copy, ready or still being made. Proxmox takes a storage's
own snapshots only of a guest with all its disks, never of a disk nobody owns; so a snapshot here
costs the time and the room of a copy. The surprise: which volume a snapshot is of stands, as a
hash, in the name of its disk; nothing else keeps it.
"""

import asyncio
from dataclasses import dataclass

from moxwell.csi.copies import Copy
from moxwell.csi.create import refuse_if_written
from moxwell.csi.driver import Driver
from moxwell.csi.ids import (
    VolumeId,
    find_volume,
    get_volume,
    is_taken_of,
    snapshot_name,
    snapshot_prefix,
    source_hash,
)
from moxwell.csi.listing import list_disks
from moxwell.csi.params import SnapshotParams
from moxwell.csi.refusals import Incompatible
from moxwell.csi.stock import FILE_TYPES, Disk, any_host
from moxwell.errors import Missing
from moxwell.pve.regions import Region

PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot as Kubernetes sees it."""

    id: VolumeId
    source: str
    size: int
    made: int  # seconds since 1970
    ready: bool


async def create(driver: Driver, name: str, source: str, params: SnapshotParams) -> Snapshot:
    """The snapshot of a name: found, or begun."""
    volume = get_volume(source)
    region = await driver.region(volume.region)
    seen = await driver.stock.look(region, volume)
    host = volume.host or any_host(region, volume.storage)
    storage = region.inventory.storage(host, volume.storage)
    files = storage is not None and storage.type in FILE_TYPES
    owner, at = driver.settings.owner, (params.zone or volume.host) if volume.host else ""
    prefix = snapshot_prefix(owner, name)
    known = await driver.stock.starting(region, volume.storage, {at, volume.host}, prefix)
    if known is not None and not is_taken_of(known.id.disk, source):
        raise Incompatible(f"snapshot {name} exists and is of another volume")
    extension = f".{volume.disk.rpartition('.')[2]}" if files else ""
    disk = snapshot_name(owner, name, source, extension=extension)
    target = VolumeId(region.name, at, volume.storage, f"{owner}/{disk}" if files else disk)
    if known is None and not params.live:
        await refuse_if_written(driver, region, volume)
    return await _begun(driver, region, Copy(volume, known.id if known else target), seen)


async def _begun(driver: Driver, region: Region, copy: Copy, seen: Disk) -> Snapshot:
    """Wait a moment for the copy; a long one is answered as not ready, and asked for again."""
    if not await driver.copies.is_open(copy.target):
        try:
            disk = await driver.stock.look(region, copy.target)
            return _as(driver, disk, str(copy.source), ready=True)
        except Missing:
            driver.stock.unlearn(copy.target)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            disk = await driver.copies.make(copy)
    except TimeoutError:
        return _as(driver, Disk(copy.target, seen.size), str(copy.source), ready=False)
    return _as(driver, disk, str(copy.source), ready=True)


def _as(driver: Driver, disk: Disk, source: str, *, ready: bool) -> Snapshot:
    made = disk.ctime or int(driver.clock.now().timestamp())
    return Snapshot(disk.id, source, disk.size, made, ready)


async def delete(driver: Driver, text: str) -> None:
    """Remove a snapshot; one that is not there is gone already."""
    volume = find_volume(text)
    if volume is not None:
        await driver.stock.remove(await driver.region(volume.region), volume)


async def list_snapshots(driver: Driver, *, source: str = "", only: str = "") -> list[Snapshot]:
    """All snapshots, or those of a volume, or one; in a stable order."""
    disks = await list_disks(driver)
    known = {source_hash(snapshot_name(0, "x", str(d.id))): str(d.id) for d in disks}
    found = []
    for disk in disks:
        hashed = source_hash(disk.id.disk)
        if hashed is None or (only and str(disk.id) != only):
            continue
        if source and not is_taken_of(disk.id.disk, source):
            continue
        ready = not await driver.copies.is_open(disk.id)
        found.append(_as(driver, disk, source or known.get(hashed, ""), ready=ready))
    return found
