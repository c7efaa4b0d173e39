"""
Volumes from snapshots and from other volumes.

In: an order with a source. Out: a volume with the source's content, on the storage and host that
the class and the topology want. Everything goes through Proxmox's clone of a carrier; if the pod's
host is another than the source's, the new carrier with its new disk is migrated there. The
surprise: the new disk is called ``vm-<carrier>-disk-0``, as Proxmox lets nobody choose that name;
the claim's name stands on the carrier.
"""

from moxwell.csi import clones, sizes, topology
from moxwell.csi.clones import Cloning
from moxwell.csi.consistency import refuse_if_written
from moxwell.csi.create import Made, Order
from moxwell.csi.disks import FILE_TYPES, Disk, type_of
from moxwell.csi.driver import Driver
from moxwell.csi.errors import Incompatible, OutOfRange, UnderWay
from moxwell.csi.helper_vms import Carrier
from moxwell.csi.ids import TakenId, VolumeId, find_taken, get_volume
from moxwell.csi.snapshot_index import list_taken
from moxwell.csi.storage_features import Means, means_of
from moxwell.csi.topology import Place
from moxwell.errors import Missing
from moxwell.pve.regions import Region


async def create(driver: Driver, order: Order) -> Made:
    """The volume of an order with a source: found, or made."""
    size = sizes.choose_size(order.required, order.limit)
    taken = find_taken(order.source)
    source = taken.volume if taken else get_volume(order.source)
    region = await driver.region(source.region)
    mark = driver.carriers.mark(region.name, order.name)
    made = await clones.find(driver, region, mark)
    if made is not None:
        return _found(order, region, made, size)
    seen = await _look(driver, region, source, taken)
    size = _size(order, size, seen.size)
    place = _place(order, region, source, size)
    means = means_of(type_of(region, source), source.disk)
    if not (taken or means.live):
        await refuse_if_written(driver, region, source)
    other = place.storage.name != source.storage
    made = await clones.make(
        driver,
        region,
        Cloning(
            order.name,
            mark,
            source,
            means,
            snapshot=taken.snapname if taken else "",
            linked=not other and _links(order, means),
            storage=place.storage.name if other else "",
            format=order.params.text("storageFormat") if place.storage.type in FILE_TYPES else "",
            told=order.source,
            size=seen.size,
            made=int(driver.clock.now().timestamp()),
            host="" if place.storage.shared else place.host,
        ),
    )
    return _answer(order, region, made, seen.size, size)


def _links(order: Order, means: Means) -> bool:
    mode = order.params.text("cloneMode")
    return means.linked and (mode == "linked" or (mode == "auto" and means.free))


async def _look(driver: Driver, region: Region, source: VolumeId, taken: TakenId | None) -> Disk:
    """The source, asked freshly; raises Missing."""
    if taken is None:
        if await driver.copies.is_open(source):
            raise UnderWay(f"{source} is not complete yet")
        return await driver.look(region, source)
    carrier = await driver.carriers.of(region, source)
    rows = await list_taken(region, carrier.host, carrier.vmid) if carrier else ()
    for row in rows:
        if row.snapname == taken.snapname:
            return Disk(source, row.size, row.made)
    raise Missing(f"there is no snapshot {taken}")


def _size(order: Order, size: int, have: int) -> int:
    if order.required == 0:
        size = max(have, sizes.SMALLEST_BYTES)
    if size < have:
        raise OutOfRange(f"{size} bytes are less than the source's {have}")
    return size


def _place(order: Order, region: Region, source: VolumeId, size: int) -> Place:
    """Clones stay with their source where the topology leaves that open."""
    roomy = topology.choose_places([region], order.params, order.wanted, size)
    near = [p for p in roomy if p.host == source.host and not order.wanted]
    return (near or roomy)[0]


def _found(order: Order, region: Region, made: Carrier, size: int) -> Made:
    if made.note("source") != order.source:
        raise Incompatible(f"volume {order.name} exists and is of {made.note('source')}")
    have = int(made.note("size") or 0)
    return _answer(order, region, made, have, _size(order, size, have))


def _answer(order: Order, region: Region, made: Carrier, have: int, size: int) -> Made:
    volume = made.disk_id(region)
    storage = region.inventory.storage(made.host, volume.storage)
    if storage is None:
        raise UnderWay(f"storage {volume.storage} of host {made.host} is not seen yet")
    context = order.params.context
    if size > have:
        context |= {"resizeRequired": "true", "resizeSizeBytes": str(size)}
    segments = Place(region, made.host, storage).segments()
    return Made(volume, max(have, size), segments, context, made.note("by"))
