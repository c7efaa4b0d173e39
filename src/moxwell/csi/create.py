"""
CreateVolume without a source, and DeleteVolume.

The disk's name is derived from the volume's name, and an existing disk of that name is looked up on
every possible host first, so a repeated call never allocates a second disk. Deleting a volume that
has snapshots keeps its disk until the last snapshot is deleted, because a storage destroys the
snapshots with the disk.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from moxwell.csi import native_snapshots, replication, sizes, topology
from moxwell.csi.disks import FILE_TYPES, DiskInfo
from moxwell.csi.driver import Driver
from moxwell.csi.errors import AttachedElsewhere, Incompatible
from moxwell.csi.ids import VolumeId, disk_name, find_volume
from moxwell.csi.parameters import VolumeParameters
from moxwell.csi.topology import Segments, StorageLocation
from moxwell.errors import Missing, MoxwellError
from moxwell.pve.regions import Region


@dataclass(frozen=True)
class CreateVolumeOptions:
    """The parameters of CreateVolume."""

    name: str
    params: VolumeParameters
    required_bytes: int = 0
    limit_bytes: int = 0
    topology: Sequence[Segments] = ()
    source: str = ""  # volume or snapshot id


@dataclass(frozen=True)
class CreatedVolume:
    """The result of CreateVolume."""

    id: VolumeId
    size: int
    segments: tuple[dict[str, str], ...]
    context: dict[str, str] = field(default_factory=dict)
    method: str = ""  # how it was made from its source


def file_name(
    owner: int, location: StorageLocation, request: "CreateVolumeOptions", tenant: str
) -> str:
    """The name of a volume's disk on a storage; earlier versions had no tenant key in it."""
    is_file = location.storage.type in FILE_TYPES
    extension = f".{request.params.text('storageFormat')}" if is_file else ""
    linstor = location.storage.type == "drbd"
    return disk_name(owner, request.name, tenant=tenant, extension=extension, linstor=linstor)


async def create(driver: Driver, request: CreateVolumeOptions) -> CreatedVolume:
    """Return the existing volume of a name, or create it."""
    size = sizes.choose_size(request.required_bytes, request.limit_bytes)
    regions = await driver.all_regions()
    locations = topology.choose_locations(regions, request.params, request.topology, 0)
    if request.params.flag("replicate"):
        return await replication.create(driver, request.name, request.params, locations, size)
    found = await _find(driver, request, locations)
    if found is not None:
        return _created(request, found[0], found[1])
    location = topology.choose_locations(regions, request.params, request.topology, size)[0]
    name = file_name(driver.settings.owner, location, request, await driver.ownership.key())
    volume = VolumeId(location.region.name, location.volume_id_host, location.storage.name, name)
    disk = await driver.disks.allocate(location.region, location.host, volume, size)
    return _created(request, location, disk)


async def _find(
    driver: Driver, request: CreateVolumeOptions, locations: Sequence[StorageLocation]
) -> tuple[StorageLocation, DiskInfo] | None:
    """The existing disk of a volume with its current size; that of an earlier version counts."""
    keys = (await driver.ownership.key(), "")
    for location, key in ((location, key) for key in keys for location in locations):
        name = file_name(driver.settings.owner, location, request, key)
        known = await driver.disks.find(
            location.region, location.storage.name, [location.volume_id_host], name
        )
        if known is not None and (key or await driver.ownership.owns(location.region, known.id)):
            if driver.helper_vms.is_deleted(location.region, known.id):
                raise Incompatible(f"{known.id} is deleted but kept for its snapshots")
            try:
                return location, await driver.disks.read(location.region, known.id)
            except Missing:
                driver.disks.discard(known.id)
    return None


def _created(
    request: CreateVolumeOptions, location: StorageLocation, disk: DiskInfo
) -> CreatedVolume:
    if not sizes.fits(disk.size, request.required_bytes, request.limit_bytes):
        raise Incompatible(f"volume {request.name} exists with {disk.size} bytes")
    return CreatedVolume(disk.id, disk.size, location.segments(), request.params.context)


async def delete(driver: Driver, text: str) -> None:
    """Delete a volume; a missing volume is not an error."""
    volume = find_volume(text)
    if volume is None:
        return
    region = await driver.region(volume.region)
    if volume.host and volume.host not in region.inventory.hosts:
        raise Missing(f"host {volume.host} of {text} does not exist in region {region.name}")
    try:
        await driver.own(volume)
    except Missing:
        return  # deleted by an earlier call
    await driver.ownership.refuse_static(region, volume)
    await driver.attachments.sync(region)
    attachment = driver.attachments.find(volume)
    if attachment is not None and attachment.slot:
        raise AttachedElsewhere(
            f"{text} is attached to guest {attachment.vmid} ({attachment.slot})"
        )
    name = volume.name.removeprefix(f"vm-{volume.owner}-")
    if await driver.persistent_volumes.is_retained(text, name):
        return
    try:
        await _delete(driver, region, volume)
    except MoxwellError as error:
        name = volume.name.partition("-pvc-")[2]
        await driver.persistent_volumes.warn_for_volume(text, name, error)
        raise
    await driver.journal.delete(driver.journal_key(volume))


async def _delete(driver: Driver, region: Region, volume: VolumeId) -> None:
    if await replication.delete(driver, region, volume):
        return
    if await native_snapshots.delete_volume(driver, region, volume):
        return
    if not driver.helper_vms.is_owner(volume):
        await (driver.disks.delete if volume.owner else driver.refuse_foreign)(region, volume)
    elif await region.inventory.is_gone(volume.owner):
        await driver.disks.delete(region, volume, owner=volume.owner)
    else:
        await driver.refuse_foreign(region, volume)
