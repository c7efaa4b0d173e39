"""
Making and removing volumes.

In: a name, a size, parameters, perhaps a source. Out: a volume that exists. The name decides the
disk's name, and the disk is looked for wherever it may have been made before, so a repeated call
never makes a second one. The surprise: a clone of a smaller disk is made as small as its source,
because Proxmox can only grow a disk that a guest has; it grows with its first attach.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from moxwell.csi import replicas, sizes, topology
from moxwell.csi.copies import Copy
from moxwell.csi.driver import Driver
from moxwell.csi.ids import VolumeId, disk_name, find_volume, get_volume
from moxwell.csi.params import Params
from moxwell.csi.refusals import HeldElsewhere, Incompatible, NotNow, OutOfRange, UnderWay
from moxwell.csi.stock import FILE_TYPES, Disk
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
    if order.source:
        return await _copy(driver, order, size)
    places = topology.choose_places(regions, order.params, order.wanted, 0)
    if order.params.flag("replicate"):
        return await replicas.create(driver, order.name, order.params, places, size)
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
            try:
                return place, await driver.stock.look(place.region, known.id)
            except Missing:
                driver.stock.unlearn(known.id)
    return None


def _answer(order: Order, place: Place, disk: Disk, grow_to: int = 0) -> Made:
    if not grow_to and not sizes.fits(disk.size, order.required, order.limit):
        raise Incompatible(f"volume {order.name} exists with {disk.size} bytes")
    context = order.params.context
    if grow_to > disk.size:
        context |= {"resizeRequired": "true", "resizeSizeBytes": str(grow_to)}
    return Made(disk.id, max(disk.size, grow_to), place.segments(), context)


async def _copy(driver: Driver, order: Order, size: int) -> Made:
    source = get_volume(order.source)
    region = await driver.region(source.region)
    seen = await driver.stock.look(region, source)
    if await driver.copies.is_open(source):
        raise UnderWay(f"{order.source} is not complete yet")
    if order.required == 0:
        size = max(seen.size, sizes.SMALLEST_BYTES)
    if size < seen.size:
        raise OutOfRange(f"{size} bytes are less than the source's {seen.size}")
    place = await _place_of_copy(driver, order, region, source, size)
    name = file_name(driver, place, order.name, order.params)
    folder = f"{driver.settings.owner}/" if place.storage.type in FILE_TYPES else ""
    target = VolumeId(region.name, place.id_host, place.storage.name, folder + name)
    disk = await _copied(driver, region, Copy(source, target))
    return _answer(order, place, disk, grow_to=size)


async def _copied(driver: Driver, region: Region, copy: Copy) -> Disk:
    """The target if it is complete, else the copy."""
    if not await driver.copies.is_open(copy.target):
        try:
            return await driver.stock.look(region, copy.target)
        except Missing:
            await refuse_if_written(driver, region, copy.source)
    return await driver.copies.make(copy)


async def refuse_if_written(driver: Driver, region: Region, source: VolumeId) -> None:
    """A copy of what a running guest writes to would be of no moment at all."""
    await driver.holders.sync(region)
    held = driver.holders.find(source)
    guest = region.inventory.find(held.vmid) if held else None
    if guest is not None and guest.running:
        raise NotNow(
            f"{source} is in use by guest {guest.vmid}, which is running: a copy would not be "
            "consistent. Stop the pods that use it, or allow whileAttached in the snapshot class"
        )


async def _place_of_copy(
    driver: Driver, order: Order, region: Region, source: VolumeId, size: int
) -> Place:
    """Copies stay with their source where they may, as the topology wants otherwise."""
    places = topology.choose_places([region], order.params, order.wanted, 0)
    existing = await _find(driver, order, places)
    if existing is not None:
        return existing[0]
    roomy = topology.choose_places([region], order.params, order.wanted, size)
    near = [p for p in roomy if p.host == source.host and not order.wanted]
    return (near or roomy)[0]


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
        if not await replicas.delete(driver, region, volume):
            await driver.stock.remove(region, volume)
    except MoxwellError as error:
        await driver.claims.tell_of(text, volume.name.partition("-pvc-")[2], error)
        raise
    await driver.book.drop(driver.book_key(volume))
