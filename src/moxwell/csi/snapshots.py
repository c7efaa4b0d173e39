"""
Snapshots: the storage's own where it has them, full copies otherwise.

In: a source volume and a name. Out: a snapshot, found or made. The storage's own are called
``region/zone/storage/disk@name`` and live on their volume's carrier; copies by Proxmox's clone are
disks of a carrier each; copies by root bear the hash of their source in their name. The surprise:
names are one space for all of them, so a name is looked for everywhere before anything is made.
"""

import asyncio
from dataclasses import dataclass

import structlog

from moxwell.csi import clones, listing, native_snapshots
from moxwell.csi.clones import Cloning
from moxwell.csi.consistency import refuse_if_written
from moxwell.csi.disks import FILE_TYPES, Disk, type_of
from moxwell.csi.driver import Driver
from moxwell.csi.errors import Incompatible, NotNow, UnderWay
from moxwell.csi.full_copies import Copy
from moxwell.csi.helper_vms import SNAPSHOT_TAG, Carrier
from moxwell.csi.ids import (
    TakenId,
    VolumeId,
    find_taken,
    find_volume,
    get_volume,
    is_snapshot_disk,
    is_taken_of,
    snapshot_name,
    snapshot_prefix,
    source_hash,
    taken_name,
)
from moxwell.csi.parameters import SnapshotParams
from moxwell.csi.snapshot_index import Taken, list_taken
from moxwell.csi.storage_features import Means, means_of
from moxwell.errors import Invalid, Missing, Unreachable
from moxwell.pve.ownership import Mark
from moxwell.pve.regions import Region

PATIENCE_SECONDS = 5.0
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot as Kubernetes sees it."""

    id: VolumeId | TakenId
    source: str
    size: int
    made: int  # seconds since 1970
    ready: bool = True


async def create(driver: Driver, name: str, source: str, params: SnapshotParams) -> Snapshot:
    """The snapshot of a name: found, or made."""
    volume = get_volume(source)
    region = await driver.region(volume.region)
    seen = await driver.look(region, volume)
    found = await _find(driver, region, name)
    if found is not None:
        if found.source != source:
            raise Incompatible(f"snapshot {name} exists and is of {found.source}")
        return found
    means = means_of(type_of(region, volume), volume.disk)
    how = _choose(region, volume, params, means)
    if await _root_copy(driver, region, name, volume, params) is not None:
        how = "root"
    log.info("snapshot", name=name, source=source, by=how)
    if how == "root":
        return await _by_root(driver, region, name, seen, params)
    if not (means.live if how == "storage" else params.live):
        await refuse_if_written(driver, region, volume)
    if how == "storage":
        return await _by_storage(driver, region, name, seen)
    return await _by_clone(driver, region, name, seen, means)


def _choose(region: Region, volume: VolumeId, params: SnapshotParams, means: Means) -> str:
    elsewhere = bool(volume.host) and params.zone not in ("", volume.host)
    if params.mode == "root" or (elsewhere and params.mode == "auto"):
        return "root"
    if params.mode == "storage" and not means.own:
        type_ = type_of(region, volume)
        raise Invalid(
            f"snapshotMode storage: Proxmox makes no new disks from snapshots of {type_}"
            " (LVM-thin, Ceph RBD, btrfs and qcow2 can)"
        )
    return "storage" if means.own and params.mode != "copy" else "copy"


async def _find(driver: Driver, region: Region, name: str) -> Snapshot | None:
    """A snapshot of this name by any means but root's, which is looked for by its storage."""
    taken = await driver.taken.find(region, name)
    if taken is not None:
        return taken_as(taken)
    made = await clones.find(driver, region, _mark(driver, region, name))
    return copy_as(region, made) if made is not None else None


def _mark(driver: Driver, region: Region, name: str) -> Mark:
    return driver.carriers.mark(region.name, f"snapshot/{name}")


def taken_as(taken: Taken) -> Snapshot:
    return Snapshot(taken.id, taken.source, taken.size, taken.made)


def copy_as(region: Region, carrier: Carrier) -> Snapshot:
    size, made = carrier.note("size"), carrier.note("made")
    return Snapshot(carrier.disk_id(region), carrier.note("source"), int(size or 0), int(made or 0))


async def _by_storage(driver: Driver, region: Region, name: str, seen: Disk) -> Snapshot:
    volume, snapname = seen.id, taken_name(name)
    described = (
        f"A Kubernetes volume snapshot.\ncsi-name={name}\ncsi-source={volume}\ncsi-size={seen.size}"
    )
    async with driver.carriers.lock(volume):
        carrier = await driver.carriers.need(region, volume)
        await native_snapshots.take(region, carrier, snapname, described)
        rows = await list_taken(region, carrier.host, carrier.vmid)
    found = next((t for t in rows if t.snapname == snapname), None)
    if found is None:
        raise UnderWay(f"snapshot {snapname} of guest {carrier.vmid} is not listed yet")
    driver.taken.learn(region.name, found)
    return taken_as(found)


async def _by_clone(
    driver: Driver, region: Region, name: str, seen: Disk, means: Means
) -> Snapshot:
    """A full copy; while it is being made the call is to be repeated."""
    cloning = Cloning(
        name,
        _mark(driver, region, name),
        seen.id,
        means,
        kind=SNAPSHOT_TAG,
        told=str(seen.id),
        size=seen.size,
        made=int(driver.clock.now().timestamp()),
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            made = await clones.make(driver, region, cloning)
    except TimeoutError:
        raise UnderWay(f"snapshot {name} is being copied; ask again") from None
    return copy_as(region, made)


# ---------------------------------------------------------------------- by root


def _zone(volume: VolumeId, params: SnapshotParams) -> str:
    return (params.zone or volume.host) if volume.host else ""


async def _root_copy(
    driver: Driver, region: Region, name: str, volume: VolumeId, params: SnapshotParams
) -> Disk | None:
    hosts = {_zone(volume, params), volume.host}
    prefix = snapshot_prefix(driver.settings.owner, name)
    return await driver.stock.starting(region, volume.storage, hosts, prefix)


async def _by_root(
    driver: Driver, region: Region, name: str, seen: Disk, params: SnapshotParams
) -> Snapshot:
    volume, source = seen.id, str(seen.id)
    owner, at = driver.settings.owner, _zone(volume, params)
    known = await _root_copy(driver, region, name, volume, params)
    if known is not None and not is_taken_of(known.id.disk, source):
        raise Incompatible(f"snapshot {name} exists and is of another volume")
    files = type_of(region, volume) in FILE_TYPES
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


# ---------------------------------------------------------------------- delete and list


async def delete(driver: Driver, text: str) -> None:
    """Remove a snapshot; one that is not there is gone already, a volume is none."""
    taken = find_taken(text)
    if taken is not None:
        return await _delete_taken(driver, taken)
    volume = find_volume(text)
    if volume is None:
        return None
    region = await driver.region(volume.region)
    if driver.carriers.owns(volume):
        return await _delete_copy(driver, region, volume)
    if is_snapshot_disk(volume.disk):
        if await native_snapshots.end_volume(driver, region, volume):
            return None  # clones of it were being made
        await driver.stock.remove(region, volume)
    return None


async def _delete_taken(driver: Driver, taken: TakenId) -> None:
    region = await driver.region(taken.volume.region)
    async with driver.carriers.lock(taken.volume):
        carrier = await driver.carriers.of(region, taken.volume)
        if carrier is not None:
            await native_snapshots.drop(region, carrier, taken.snapname)
            driver.taken.unlearn(taken)
            await native_snapshots.tidy(driver, region, taken.volume, carrier)


async def _delete_copy(driver: Driver, region: Region, volume: VolumeId) -> None:
    carrier = await driver.carriers.of(region, volume)
    if carrier is None or SNAPSHOT_TAG not in carrier.config.tags:
        return
    await driver.holders.sync(region)
    held = driver.holders.find(volume)
    if held is not None:
        raise NotNow(f"{volume} is attached to guest {held.vmid}")
    await native_snapshots.end_volume(driver, region, volume)


async def list_snapshots(driver: Driver, *, source: str = "", only: str = "") -> list[Snapshot]:
    """All snapshots, or those of a volume, or one; in a stable order."""
    found = await _by_root_all(driver)
    for region in await driver.all_regions():
        found += [taken_as(t) for t in await driver.taken.refresh(region)]
        for guest in region.inventory.guests.values():
            if SNAPSHOT_TAG in guest.tags:
                try:
                    config = await region.pve.qemu.config(guest.host, guest.vmid)
                except (Missing, Unreachable) as error:
                    log.info("snapshot left out", guest=guest.vmid, error=str(error))
                    continue
                found.append(copy_as(region, Carrier(guest.vmid, guest.host, config)))
    rows = [s for s in found if source in ("", s.source) and only in ("", str(s.id))]
    return sorted(rows, key=lambda s: str(s.id))


async def _by_root_all(driver: Driver) -> list[Snapshot]:
    disks = await listing.list_disks(driver)
    known = {source_hash(snapshot_name(0, "x", str(d.id))): str(d.id) for d in disks}
    found = []
    for disk in disks:
        hashed = source_hash(disk.id.disk)
        if is_snapshot_disk(disk.id.disk):
            ready = not await driver.copies.is_open(disk.id)
            found.append(_as(driver, disk, known.get(hashed, ""), ready=ready))
    return found
