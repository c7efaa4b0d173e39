"""
CreateVolume from a snapshot or from another volume.

The source's helper VM is cloned in Proxmox; if the topology requires another host, the new helper
VM with its disk is migrated there. Proxmox chooses the name of the new disk, ``vm-<vmid>-disk-0``;
the volume's name is in the description of the helper VM.
"""

from moxwell.csi import clones, sizes, topology
from moxwell.csi.clones import CloneRequest
from moxwell.csi.consistency import refuse_if_in_use
from moxwell.csi.create import CreatedVolume, CreateVolumeOptions
from moxwell.csi.disks import FILE_TYPES, DiskInfo, storage_type
from moxwell.csi.driver import Driver
from moxwell.csi.errors import Incompatible, OperationPending, OutOfRange
from moxwell.csi.helper_vms import HelperVM
from moxwell.csi.ids import SnapshotId, VolumeId, find_snapshot, get_volume
from moxwell.csi.snapshot_index import list_native_snapshots
from moxwell.csi.storage_features import StorageFeatures, features_of
from moxwell.csi.topology import StorageLocation
from moxwell.errors import Missing
from moxwell.pve.regions import Region


async def create(driver: Driver, request: CreateVolumeOptions) -> CreatedVolume:
    """Return the existing volume of a name, or create it from its source."""
    size = sizes.choose_size(request.required_bytes, request.limit_bytes)
    snapshot = find_snapshot(request.source)
    source = snapshot.volume if snapshot else get_volume(request.source)
    region = await driver.own(source)
    mark = driver.helper_vms.mark(region.name, request.name)
    found = await clones.find(driver, region, mark)
    if found is not None:
        return _existing(request, region, found, size)
    disk = await _read_source(driver, region, source, snapshot)
    size = _size(request, size, disk.size)
    location = _choose_location(request, region, source, size)
    features = features_of(storage_type(region, source), source.disk)
    if not (snapshot or features.consistent):
        await refuse_if_in_use(driver, region, source)
    other_storage = location.storage.name != source.storage
    is_file = location.storage.type in FILE_TYPES
    clone = CloneRequest(
        request.name,
        mark,
        await driver.ownership.key(),
        source,
        features,
        snapshot=snapshot.snapname if snapshot else "",
        linked=not other_storage and _is_linked(request, features),
        storage=location.storage.name if other_storage else "",
        format=request.params.text("storageFormat") if is_file else "",
        source_id=request.source,
        size=disk.size,
        created=int(driver.clock.now().timestamp()),
        host="" if location.storage.shared else location.host,
    )
    vm = await clones.create(driver, region, clone)
    return _created(request, region, vm, disk.size, size)


def _is_linked(request: CreateVolumeOptions, features: StorageFeatures) -> bool:
    mode = request.params.text("cloneMode")
    return features.linked_clones and (
        mode == "linked" or (mode == "auto" and features.independent_clones)
    )


async def _read_source(
    driver: Driver, region: Region, source: VolumeId, snapshot: SnapshotId | None
) -> DiskInfo:
    """Read the source volume or snapshot; raises Missing."""
    if snapshot is None:
        if await driver.copies.is_incomplete(source):
            raise OperationPending(f"{source} is not complete yet")
        return await driver.read_disk(region, source)
    vm = await driver.helper_vms.find_for(region, source)
    rows = await list_native_snapshots(region, vm.host, vm.vmid) if vm else ()
    for row in rows:
        if row.snapname == snapshot.snapname:
            return DiskInfo(source, row.size, row.created)
    raise Missing(f"snapshot {snapshot} does not exist")


def _size(request: CreateVolumeOptions, size: int, source_size: int) -> int:
    if request.required_bytes == 0:
        size = max(source_size, sizes.SMALLEST_BYTES)
    if size < source_size:
        raise OutOfRange(f"{size} bytes are less than the {source_size} of the source")
    return size


def _choose_location(
    request: CreateVolumeOptions, region: Region, source: VolumeId, size: int
) -> StorageLocation:
    """Prefer the source's host if no topology is requested."""
    fitting = topology.choose_locations([region], request.params, request.topology, size)
    same_host = [p for p in fitting if p.host == source.host and not request.topology]
    return (same_host or fitting)[0]


def _existing(
    request: CreateVolumeOptions, region: Region, vm: HelperVM, size: int
) -> CreatedVolume:
    source = vm.field("source")
    if source != request.source:
        raise Incompatible(f"volume {request.name} exists with the source {source}")
    source_size = int(vm.field("size") or 0)
    return _created(request, region, vm, source_size, _size(request, size, source_size))


def _created(
    request: CreateVolumeOptions, region: Region, vm: HelperVM, source_size: int, size: int
) -> CreatedVolume:
    volume = vm.volume_id(region)
    storage = region.inventory.storage(vm.host, volume.storage)
    if storage is None:
        raise OperationPending(f"storage {volume.storage} of host {vm.host} is not known yet")
    context = request.params.context
    if size > source_size:
        context |= {"resizeRequired": "true", "resizeSizeBytes": str(size)}
    segments = StorageLocation(region, vm.host, storage).segments()
    return CreatedVolume(volume, max(source_size, size), segments, context, vm.field("by"))
