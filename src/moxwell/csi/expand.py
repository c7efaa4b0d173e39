"""
ControllerExpandVolume and ControllerModifyVolume: changes the size and the limits of volumes.

An attached volume is changed at once. Proxmox cannot change a detached disk, so the change is
written to the journal and applied at the next attach. A journal entry is deleted only after the
running guest has the change; a crash in between repeats it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from moxwell.csi import replication, sizes, steps
from moxwell.csi.attach_plan import UpdateRequest
from moxwell.csi.attach_queue import AttachedDisk
from moxwell.csi.disks import host_of
from moxwell.csi.driver import Driver
from moxwell.csi.errors import InsufficientCapacity, OutOfRange
from moxwell.csi.ids import VolumeId, get_volume
from moxwell.csi.parameters import MUTABLE, VolumeParameters, check_mutable
from moxwell.errors import Missing
from moxwell.pve import errors, property_strings
from moxwell.pve.regions import Region
from moxwell.pve.values import size_bytes

SIZE = "size"


@dataclass(frozen=True, slots=True)
class ExpandResult:
    """The new size, and whether NodeExpandVolume is required."""

    size: int
    node_expansion_required: bool


async def expand(driver: Driver, text: str, required: int, limit: int) -> ExpandResult:
    """Expand a volume now if it is attached, otherwise at the next attach."""
    volume = get_volume(text)
    region = await driver.own(volume)
    size = sizes.choose_size(required, limit)
    await driver.attachments.sync(region)
    attachment = driver.attachments.find(volume)
    if attachment is not None and attachment.slot:
        try:
            return ExpandResult(await _resize(driver, region, attachment.vmid, volume, size), True)
        except Missing:
            driver.attachments.remove(volume, attachment.vmid)
    current = (await driver.read_disk(region, volume)).size
    if current >= size:
        return ExpandResult(current, True)
    _check_capacity(region, volume, size - current)
    entry = await driver.journal.get(driver.journal_key(volume))
    await driver.journal.put(driver.journal_key(volume), {**entry, SIZE: str(size)})
    return ExpandResult(size, True)


def _check_capacity(region: Region, volume: VolumeId, additional: int) -> None:
    host = host_of(region, volume)
    storage = region.inventory.storage(host, volume.storage)
    if storage is not None and additional > storage.total_bytes:
        raise OutOfRange(f"storage {volume.storage} is smaller than {additional} bytes")
    if storage is not None and additional > storage.free_bytes:
        free = storage.free_bytes >> 30
        raise InsufficientCapacity(f"storage {volume.storage} has {free} GiB free")


async def _resize(driver: Driver, region: Region, vmid: int, volume: VolumeId, size: int) -> int:
    """Grow an attached disk; returns the resulting size."""
    guest = region.inventory.find(vmid)
    if guest is None:
        raise Missing(f"guest {vmid} does not exist")
    config = await region.reader.qemu.config(guest.host, vmid, current=True)
    slot = config.slot_of(volume.volid)
    if slot is None:
        raise Missing(f"{volume.volid} is not attached to guest {vmid}")
    current = config.size_bytes(slot)
    if current >= size:
        return current
    step = steps.ExpandDisk(
        region_name=region.name,
        host=guest.host,
        guest=vmid,
        slot=slot,
        size_mib=size // sizes.MIB,
    )
    try:
        await steps.run(region, step, brief=True)
    finally:
        driver.queues.changed(region, vmid)
    return size


async def modify(driver: Driver, text: str, given: Mapping[str, str]) -> None:
    """Change mutable parameters; invalid ones are rejected before anything changes."""
    check_mutable(given)
    volume = get_volume(text)
    region = await driver.own(volume)
    await driver.attachments.sync(region)
    attachment = driver.attachments.find(volume)
    if attachment is None:
        await driver.read_disk(region, volume)
    key = driver.journal_key(volume)
    entry = {**await driver.journal.get(key), **{k: v for k, v in given.items() if k in MUTABLE}}
    await driver.journal.put(key, entry)
    if "replicateSchedule" in given:
        await replication.set_schedule(driver, region, volume, given["replicateSchedule"])
    if attachment is not None:
        request = UpdateRequest(volume.volid, _options(entry, given))
        await driver.queues.submit(region, attachment.vmid, request)


def _options(entry: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str | None]:
    """The drive options of the given parameters; an empty limit removes the option."""
    full = VolumeParameters.of_context({}, entry).drive()
    options: dict[str, str | None] = {}
    if "backup" in given:
        options["backup"] = full["backup"]
    for key, name in (("diskIOPS", "iops"), ("diskMBps", "mbps")):
        if key in given:
            options |= {f"{name}_rd": full.get(f"{name}_rd"), f"{name}_wr": full.get(f"{name}_wr")}
    return options


async def apply_deferred_size(
    driver: Driver,
    region: Region,
    volume: VolumeId,
    entry: Mapping[str, str],
    context: Mapping[str, str],
    disk: AttachedDisk,
) -> None:
    """Grow a volume that was just attached to the size requested while it was detached."""
    deferred = max(int(entry.get(SIZE) or 0), int(context.get("resizeSizeBytes") or 0))
    current = property_strings.parse(disk.drive).get("size", "0")
    attachment = driver.attachments.find(volume)
    if attachment is None or not deferred:
        return
    if size_bytes(current) < deferred:
        try:
            await _resize(driver, region, attachment.vmid, volume, deferred)
        except errors.StorageFull as error:
            raise InsufficientCapacity(
                f"the storage has not enough space to grow {volume} to {deferred} bytes"
            ) from error
    if SIZE in entry:
        rest = {k: v for k, v in entry.items() if k != SIZE}
        key = driver.journal_key(volume)
        await (driver.journal.put(key, rest) if rest else driver.journal.delete(key))
