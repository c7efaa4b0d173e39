"""
CreateSnapshot, DeleteSnapshot and ListSnapshots: native snapshots or full copies.

A native snapshot has the id ``region/zone/storage/disk@name`` and is a snapshot of the volume's
helper VM. A full copy by Proxmox's clone is the disk of its own helper VM. A full copy by root has
a hash of the source volume id in its disk name. All share one name space, so every kind is searched
before a snapshot is created.
"""

import asyncio
from dataclasses import dataclass

import structlog

from moxwell.csi import clones, listing, native_snapshots
from moxwell.csi.clones import CloneRequest
from moxwell.csi.consistency import refuse_if_in_use
from moxwell.csi.disks import FILE_TYPES, DiskInfo, storage_type
from moxwell.csi.driver import Driver
from moxwell.csi.errors import FailedPrecondition, Incompatible, OperationPending
from moxwell.csi.full_copies import DiskCopy
from moxwell.csi.helper_vms import SNAPSHOT_TAG, HelperVM
from moxwell.csi.ids import (
    SnapshotId,
    VolumeId,
    find_snapshot,
    find_volume,
    get_volume,
    is_snapshot_disk,
    is_snapshot_of,
    proxmox_snapshot_name,
    snapshot_name,
    snapshot_prefix,
    source_hash,
)
from moxwell.csi.parameters import SnapshotParameters
from moxwell.csi.snapshot_index import SnapshotRecord, list_native_snapshots
from moxwell.csi.storage_features import StorageFeatures, features_of
from moxwell.errors import Invalid, Missing, Unreachable
from moxwell.pve.ownership import Mark
from moxwell.pve.regions import Region

WAIT_SECONDS = 5.0
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A snapshot as the CSI calls return it."""

    id: VolumeId | SnapshotId
    source: str
    size: int
    created: int  # seconds since 1970
    ready: bool = True


async def create(
    driver: Driver, name: str, source: str, params: SnapshotParameters
) -> SnapshotInfo:
    """Return the existing snapshot of a name, or create it."""
    volume = get_volume(source)
    region = await driver.own(volume)
    disk = await driver.read_disk(region, volume)
    found = await _find(driver, region, name)
    if found is not None:
        if found.source != source:
            raise Incompatible(f"snapshot {name} exists with the source {found.source}")
        return found
    features = features_of(storage_type(region, volume), volume.disk)
    mode = _choose_mode(region, volume, params, features)
    if await _find_root_copy(driver, region, name, volume, params) is not None:
        mode = "root"
    log.info("snapshot started", name=name, source=source, by=mode)
    if mode == "root":
        return await _create_root_copy(driver, region, name, disk, params)
    if not (features.consistent if mode == "storage" else params.while_attached):
        await refuse_if_in_use(driver, region, volume)
    if mode == "storage":
        return await _create_native(driver, region, name, disk)
    return await _create_clone(driver, region, name, disk, features)


def _choose_mode(
    region: Region, volume: VolumeId, params: SnapshotParameters, features: StorageFeatures
) -> str:
    other_zone = bool(volume.host) and params.zone not in ("", volume.host)
    if params.mode == "root" or (other_zone and params.mode == "auto"):
        return "root"
    if params.mode == "storage" and not features.native:
        type_ = storage_type(region, volume)
        raise Invalid(
            f"snapshotMode storage: Proxmox cannot create disks from snapshots of {type_}"
            " (supported: LVM-thin, Ceph RBD, btrfs and qcow2)"
        )
    return "storage" if features.native and params.mode != "copy" else "copy"


async def _find(driver: Driver, region: Region, name: str) -> SnapshotInfo | None:
    """A native snapshot or clone of this name; copies by root are looked up by storage."""
    record = await driver.snapshot_index.find(region, name)
    if record is not None:
        await driver.ownership.prove(region, record.id.volume)
        return from_record(record)
    vm = await clones.find(driver, region, _mark(driver, region, name))
    return from_copy(region, vm) if vm is not None else None


def _mark(driver: Driver, region: Region, name: str) -> Mark:
    return driver.helper_vms.mark(region.name, f"snapshot/{name}")


def from_record(record: SnapshotRecord) -> SnapshotInfo:
    return SnapshotInfo(record.id, record.source, record.size, record.created)


def from_copy(region: Region, vm: HelperVM) -> SnapshotInfo:
    size, created = int(vm.field("size") or 0), int(vm.field("made") or 0)
    return SnapshotInfo(vm.volume_id(region), vm.field("source"), size, created)


async def _create_native(driver: Driver, region: Region, name: str, disk: DiskInfo) -> SnapshotInfo:
    volume, snapname = disk.id, proxmox_snapshot_name(name)
    description = (
        f"A Kubernetes volume snapshot.\ncsi-name={name}\ncsi-source={volume}\ncsi-size={disk.size}"
    )
    async with driver.helper_vms.lock(volume):
        tenant = await driver.ownership.key()
        vm = await driver.helper_vms.ensure(region, volume, tenant=tenant)
        await native_snapshots.create(region, vm, snapname, description)
        rows = await list_native_snapshots(region, vm.host, vm.vmid)
    found = next((row for row in rows if row.snapname == snapname), None)
    if found is None:
        raise OperationPending(f"snapshot {snapname} of guest {vm.vmid} is not listed yet")
    driver.snapshot_index.add(region.name, found)
    return from_record(found)


async def _create_clone(
    driver: Driver, region: Region, name: str, disk: DiskInfo, features: StorageFeatures
) -> SnapshotInfo:
    """Make a full clone; a call that takes too long ends with OperationPending."""
    request = CloneRequest(
        name,
        _mark(driver, region, name),
        await driver.ownership.key(),
        disk.id,
        features,
        tag=SNAPSHOT_TAG,
        source_id=str(disk.id),
        size=disk.size,
        created=int(driver.clock.now().timestamp()),
    )
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            vm = await clones.create(driver, region, request)
    except TimeoutError:
        raise OperationPending(f"snapshot {name} is being copied") from None
    return from_copy(region, vm)


# ---------------------------------------------------------------------- copies by root


def _zone(volume: VolumeId, params: SnapshotParameters) -> str:
    return (params.zone or volume.host) if volume.host else ""


async def _find_root_copy(
    driver: Driver, region: Region, name: str, volume: VolumeId, params: SnapshotParameters
) -> DiskInfo | None:
    hosts = {_zone(volume, params), volume.host}
    prefix = snapshot_prefix(driver.settings.owner, name)
    for disk in await driver.disks.find_by_prefix(region, volume.storage, hosts, prefix):
        if await driver.ownership.owns(region, disk.id):
            return disk
    return None


async def _create_root_copy(
    driver: Driver, region: Region, name: str, disk: DiskInfo, params: SnapshotParameters
) -> SnapshotInfo:
    volume, source = disk.id, str(disk.id)
    owner, zone = driver.settings.owner, _zone(volume, params)
    known = await _find_root_copy(driver, region, name, volume, params)
    if known is not None and not is_snapshot_of(known.id.disk, source):
        raise Incompatible(f"snapshot {name} exists with another source")
    is_file = storage_type(region, volume) in FILE_TYPES
    extension = f".{volume.disk.rpartition('.')[2]}" if is_file else ""
    tenant = await driver.ownership.key()
    file = snapshot_name(owner, name, source, tenant=tenant, extension=extension)
    target = VolumeId(region.name, zone, volume.storage, f"{owner}/{file}" if is_file else file)
    if known is None and not params.while_attached:
        await refuse_if_in_use(driver, region, volume)
    return await _copy(driver, region, DiskCopy(volume, known.id if known else target), disk)


async def _copy(driver: Driver, region: Region, copy: DiskCopy, disk: DiskInfo) -> SnapshotInfo:
    """Copy, or wait for the copy; one that takes too long is returned as not ready to use."""
    if not await driver.copies.is_incomplete(copy.target):
        try:
            copied = await driver.disks.read(region, copy.target)
            return _from_disk(driver, copied, str(copy.source), ready=True)
        except Missing:
            driver.disks.discard(copy.target)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            copied = await driver.copies.run(copy)
    except TimeoutError:
        target = DiskInfo(copy.target, disk.size)
        return _from_disk(driver, target, str(copy.source), ready=False)
    return _from_disk(driver, copied, str(copy.source), ready=True)


def _from_disk(driver: Driver, disk: DiskInfo, source: str, *, ready: bool) -> SnapshotInfo:
    created = disk.ctime or int(driver.clock.now().timestamp())
    return SnapshotInfo(disk.id, source, disk.size, created, ready)


# ---------------------------------------------------------------------- delete and list


async def delete(driver: Driver, text: str) -> None:
    """Delete a snapshot; ids of missing snapshots and of volumes are ignored."""
    snapshot = find_snapshot(text)
    if snapshot is not None:
        return await _delete_native(driver, snapshot)
    volume = find_volume(text)
    if volume is None:
        return None
    region = await driver.region(volume.region)
    try:
        await driver.own(volume)
    except Missing:
        return None  # deleted by an earlier call
    if driver.helper_vms.is_owner(volume):
        return await _delete_clone(driver, region, volume)
    if is_snapshot_disk(volume.disk):
        if await native_snapshots.delete_volume(driver, region, volume):
            return None  # it had a helper VM, because it was cloned
        await driver.disks.delete(region, volume)
    return None


async def _delete_native(driver: Driver, snapshot: SnapshotId) -> None:
    region = await driver.region(snapshot.volume.region)
    try:
        await driver.own(snapshot.volume)
    except Missing:
        return  # its helper VM does not exist either
    async with driver.helper_vms.lock(snapshot.volume):
        vm = await driver.helper_vms.find_for(region, snapshot.volume)
        if vm is not None:
            await native_snapshots.delete(region, vm, snapshot.snapname)
            driver.snapshot_index.remove(snapshot)
            await native_snapshots.clean_up(driver, region, snapshot.volume, vm)


async def _delete_clone(driver: Driver, region: Region, volume: VolumeId) -> None:
    vm = await driver.helper_vms.find_for(region, volume)
    if vm is None or SNAPSHOT_TAG not in vm.tags:
        return
    await driver.attachments.sync(region)
    attachment = driver.attachments.find(volume)
    if attachment is not None:
        raise FailedPrecondition(f"{volume} is attached to guest {attachment.vmid}")
    await native_snapshots.delete_volume(driver, region, volume)


async def list_snapshots(
    driver: Driver, *, source: str = "", snapshot_id: str = ""
) -> list[SnapshotInfo]:
    """All snapshots, those of a source volume, or one; sorted by id."""
    found = await _list_root_copies(driver)
    for region in await driver.all_regions():
        for record in await driver.snapshot_index.refresh(region):
            if await driver.ownership.owns(region, record.id.volume):
                found.append(from_record(record))
        found += await _list_clones(driver, region)
    rows = [s for s in found if source in ("", s.source) and snapshot_id in ("", str(s.id))]
    return sorted(rows, key=lambda s: str(s.id))


async def _list_clones(driver: Driver, region: Region) -> list[SnapshotInfo]:
    found = []
    for guest in region.inventory.guests.values():
        if SNAPSHOT_TAG in guest.tags:
            try:
                config = await region.reader.qemu.config(guest.host, guest.vmid)
            except (Missing, Unreachable) as error:
                log.info("snapshot skipped", guest=guest.vmid, error=str(error))
                continue
            vm = HelperVM(guest.vmid, guest.host, config)
            if await driver.ownership.owns_vm(region, vm):
                found.append(from_copy(region, vm))
    return found


async def _list_root_copies(driver: Driver) -> list[SnapshotInfo]:
    disks = await listing.list_disks(driver)
    known = {source_hash(snapshot_name(0, "x", str(d.id))): str(d.id) for d in disks}
    found = []
    for disk in disks:
        hashed = source_hash(disk.id.disk)
        if is_snapshot_disk(disk.id.disk):
            ready = not await driver.copies.is_incomplete(disk.id)
            found.append(_from_disk(driver, disk, known.get(hashed, ""), ready=ready))
    return found
