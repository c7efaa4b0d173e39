"""
Changing volumes: larger, and with other limits.

In: a volume and what it shall become. Out: what it is. A volume that a guest has is changed at
once; for one that no guest has, Proxmox can change nothing, so the promise goes into the book
first and comes true at the next attach. The surprise: a promise is dropped only after the running
guest was seen to have it; a crash in between costs a repeated, harmless change.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from moxwell.csi import replication, sizes
from moxwell.csi.attach_plan import Adjust
from moxwell.csi.attach_queue import Seat
from moxwell.csi.disks import host_of
from moxwell.csi.driver import Driver
from moxwell.csi.errors import NoRoom, OutOfRange
from moxwell.csi.ids import VolumeId, get_volume
from moxwell.csi.parameters import MUTABLE, Params, check_mutable
from moxwell.errors import Missing
from moxwell.pve import errors, property_strings
from moxwell.pve.regions import Region
from moxwell.pve.values import size_bytes

SIZE = "size"


@dataclass(frozen=True, slots=True)
class Grown:
    """The size of a volume, and whether a node has something to do."""

    size: int
    node_acts: bool


async def expand(driver: Driver, text: str, required: int, limit: int) -> Grown:
    """At least as large as required; now if a guest has it, else with the next attach."""
    volume = get_volume(text)
    region = await driver.region(volume.region)
    size = sizes.choose_size(required, limit)
    await driver.holders.sync(region)
    held = driver.holders.find(volume)
    if held is not None and held.slot:
        try:
            return Grown(await _resize(region, held.vmid, volume, size), True)
        except Missing:
            driver.holders.drop(volume, held.vmid)
    have = (await driver.look(region, volume)).size
    if have >= size:
        return Grown(have, True)
    _check_room(region, volume, size - have)
    entry = await driver.book.get(driver.book_key(volume))
    await driver.book.put(driver.book_key(volume), {**entry, SIZE: str(size)})
    return Grown(size, True)


def _check_room(region: Region, volume: VolumeId, more: int) -> None:
    host = host_of(region, volume)
    storage = region.inventory.storage(host, volume.storage)
    if storage is not None and more > storage.total_bytes:
        raise OutOfRange(f"storage {volume.storage} is smaller than {more} bytes")
    if storage is not None and more > storage.free_bytes:
        raise NoRoom(f"storage {volume.storage} has {storage.free_bytes >> 30} GiB free")


async def _resize(region: Region, vmid: int, volume: VolumeId, size: int) -> int:
    """Grow the disk of a guest; answers its size as the guest's configuration has it."""
    guest = region.inventory.find(vmid)
    if guest is None:
        raise Missing(f"there is no guest {vmid}")
    config = await region.pve.qemu.config(guest.host, vmid, current=True)
    slot = config.slot_of(volume.volid)
    if slot is None:
        raise Missing(f"{volume.volid} is not attached to guest {vmid}")
    have = config.size_bytes(slot)
    if have >= size:
        return have
    upid = await region.pve.qemu.resize(guest.host, vmid, slot, f"{size // sizes.MIB}M")
    failure = (await region.tasks.wait_ended(upid)).error if upid else None
    if failure is not None:
        raise failure
    return size


async def modify(driver: Driver, text: str, given: Mapping[str, str]) -> None:
    """New attributes; refused as a whole before anything is changed."""
    check_mutable(given)
    volume = get_volume(text)
    region = await driver.region(volume.region)
    await driver.holders.sync(region)
    held = driver.holders.find(volume)
    if held is None:
        await driver.look(region, volume)
    key = driver.book_key(volume)
    entry = {**await driver.book.get(key), **{k: v for k, v in given.items() if k in MUTABLE}}
    await driver.book.put(key, entry)
    if "replicateSchedule" in given:
        await replication.reschedule(driver, region, volume, given["replicateSchedule"])
    if held is not None:
        wish = Adjust(volume.volid, _options(entry, given))
        await driver.queues.ask(region, held.vmid, wish)


def _options(entry: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str | None]:
    """Only what was named changes; a limit that is empty is lifted."""
    full = Params.of_context({}, entry).drive()
    named: dict[str, str | None] = {}
    if "backup" in given:
        named["backup"] = full["backup"]
    for key, name in (("diskIOPS", "iops"), ("diskMBps", "mbps")):
        if key in given:
            named |= {f"{name}_rd": full.get(f"{name}_rd"), f"{name}_wr": full.get(f"{name}_wr")}
    return named


async def keep_promises(
    driver: Driver,
    region: Region,
    volume: VolumeId,
    entry: Mapping[str, str],
    context: Mapping[str, str],
    seat: Seat,
) -> None:
    """Grow a volume that was just attached to what was promised while it was not."""
    promised = max(int(entry.get(SIZE) or 0), int(context.get("resizeSizeBytes") or 0))
    size = property_strings.parse(seat.drive).get("size", "0")
    held = driver.holders.find(volume)
    if held is None or not promised:
        return
    if size_bytes(size) < promised:
        try:
            await _resize(region, held.vmid, volume, promised)
        except errors.StorageFull as error:
            raise NoRoom(f"no room to grow {volume} to the promised {promised}") from error
    if SIZE in entry:
        rest = {k: v for k, v in entry.items() if k != SIZE}
        key = driver.book_key(volume)
        await (driver.book.put(key, rest) if rest else driver.book.drop(key))
