"""
Making and removing volumes.

In: a name, a size, parameters, perhaps a source. Out: a volume that exists. The name decides the
disk's name, and the disk is looked for wherever it may have been made before, so a repeated call
never makes a second one. The surprise: deleting a volume that has snapshots keeps its
disk, because every storage would destroy them with it; the disk goes with the last snapshot.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from moxwell.csi import native_snapshots, replication, sizes, topology
from moxwell.csi.disks import FILE_TYPES, Disk
from moxwell.csi.driver import Driver
from moxwell.csi.errors import HeldElsewhere, Incompatible, NotNow
from moxwell.csi.ids import VolumeId, disk_name, find_volume
from moxwell.csi.parameters import Params
from moxwell.csi.topology import Place, Segments
from moxwell.errors import Missing, MoxwellError
from moxwell.pve.regions import Region


@dataclass(frozen=True)
class Order:
    """A volume that somebody wants."""

    name: str
    params: Params
    required: int = 0
    limit: int = 0
    wanted: Sequence[Segments] = ()
    source: str = ""  # id of a volume or snapshot


@dataclass(frozen=True)
class Made:
    """A volume that exists."""

    id: VolumeId
    size: int
    segments: tuple[dict[str, str], ...]
    context: dict[str, str] = field(default_factory=dict)
    by: str = ""  # how it was made from its source


def file_name(driver: Driver, place: Place, name: str, params: Params, owner: int = 0) -> str:
    """The name of a disk as its storage wants it."""
    files = place.storage.type in FILE_TYPES
    extension = f".{params.text('storageFormat')}" if files else ""
    linstor = place.storage.type == "drbd"
    return disk_name(owner or driver.settings.owner, name, extension=extension, linstor=linstor)


async def create(driver: Driver, order: Order) -> Made:
    """The volume of an order: found, or made."""
    size = sizes.choose_size(order.required, order.limit)
    regions = await driver.all_regions()
    places = topology.choose_places(regions, order.params, order.wanted, 0)
    if order.params.flag("replicate"):
        return await replication.create(driver, order.name, order.params, places, size)
    found = await _find(driver, order, places)
    if found is not None:
        return _answer(order, found[0], found[1])
    place = topology.choose_places(regions, order.params, order.wanted, size)[0]
    name = file_name(driver, place, order.name, order.params)
    wanted = VolumeId(place.region.name, place.id_host, place.storage.name, name)
    disk = await driver.stock.make(place.region, place.host, wanted, size)
    return _answer(order, place, disk)


async def _find(driver: Driver, order: Order, places: Sequence[Place]) -> tuple[Place, Disk] | None:
    """The order's disk, wherever it was made before; asked for its size if it is there."""
    for place in places:
        name = file_name(driver, place, order.name, order.params)
        known = await driver.stock.find(place.region, place.storage.name, [place.id_host], name)
        if known is not None:
            if driver.carriers.is_gone(place.region, known.id):
                raise Incompatible(f"{known.id} was deleted and is kept for its snapshots")
            try:
                return place, await driver.stock.look(place.region, known.id)
            except Missing:
                driver.stock.unlearn(known.id)
    return None


def _answer(order: Order, place: Place, disk: Disk) -> Made:
    if not sizes.fits(disk.size, order.required, order.limit):
        raise Incompatible(f"volume {order.name} exists with {disk.size} bytes")
    return Made(disk.id, disk.size, place.segments(), order.params.context)


async def delete(driver: Driver, text: str) -> None:
    """Remove a volume; one that is not there is gone already."""
    volume = find_volume(text)
    if volume is None:
        return
    region = await driver.region(volume.region)
    if volume.host and volume.host not in region.inventory.hosts:
        raise Missing(f"host {volume.host} of region {region.name} is not there; {text} may be")
    await driver.holders.sync(region)
    held = driver.holders.find(volume)
    if held is not None and held.slot:
        raise HeldElsewhere(f"{text} is attached to guest {held.vmid} ({held.slot})")
    if await driver.claims.is_kept(text, volume.name.removeprefix(f"vm-{volume.owner}-")):
        return
    try:
        await _remove(driver, region, volume)
    except MoxwellError as error:
        await driver.claims.tell_of(text, volume.name.partition("-pvc-")[2], error)
        raise
    await driver.book.drop(driver.book_key(volume))


async def _remove(driver: Driver, region: Region, volume: VolumeId) -> None:
    if await replication.delete(driver, region, volume):
        return
    if await native_snapshots.end_volume(driver, region, volume):
        return
    if driver.carriers.owns(volume) and not await region.inventory.is_gone(volume.owner):
        await _refuse_foreign(driver, region, volume)
        return
    await driver.stock.remove(region, volume)


async def _refuse_foreign(driver: Driver, region: Region, volume: VolumeId) -> None:
    """The id in the name is a guest's that is not ours: its disk is not ours to remove."""
    try:
        await driver.stock.look(region, volume)
    except Missing:
        return
    raise NotNow(f"{volume} belongs to guest {volume.owner}, which is not the driver's")
