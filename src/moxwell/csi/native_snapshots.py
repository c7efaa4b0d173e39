"""
A storage's own snapshots, taken of a disk through its carrier.

In: a carrier and a name. Out: a snapshot of its one disk. A volume that was deleted lives as long
as it has snapshots, as Ceph, LVM and ZFS destroy a disk's snapshots with the disk and do not ask.
The surprise: a snapshot whose clone hangs on it (Ceph) cannot go first; that is told, not forced.
"""

from moxwell.csi import active_tasks
from moxwell.csi.driver import Driver
from moxwell.csi.errors import HeldElsewhere, NotNow, UnderWay
from moxwell.csi.helper_vms import CARRIER_TAG, Carrier, note_in
from moxwell.csi.ids import VolumeId
from moxwell.errors import Missing
from moxwell.pve.regions import Region

PASSING = "clone-"


async def take(region: Region, carrier: Carrier, name: str, described: str) -> None:
    """The snapshot of a name: there already, or taken now."""
    rows = await region.pve.snapshots.list(carrier.host, carrier.vmid)
    if any(row.name == name for row in rows):
        return
    upid = await region.pve.snapshots.create(
        carrier.host, carrier.vmid, name, description=described
    )
    ended = await region.tasks.wait_ended(upid)
    if ended.error is not None:
        raise ended.error


async def drop(region: Region, carrier: Carrier, name: str) -> None:
    """Remove a snapshot; one that is not there is gone already."""
    rows = await region.pve.snapshots.list(carrier.host, carrier.vmid)
    if all(row.name != name for row in rows):
        return
    upid = await region.pve.snapshots.delete(carrier.host, carrier.vmid, name)
    error = (await region.tasks.wait_ended(upid)).error
    if error is None or isinstance(error, Missing):
        return
    if "unprotect" in str(error):
        raise NotNow(f"volumes still hang on this snapshot (linked clones): {error}") from error
    raise error


async def tidy(driver: Driver, region: Region, volume: VolumeId, carrier: Carrier) -> None:
    """Remove what nobody needs any more: an idle carrier, and a deleted volume's disk."""
    if driver.carriers.is_used(volume):
        return
    if await region.pve.snapshots.list(carrier.host, carrier.vmid):
        return
    if CARRIER_TAG in carrier.config.tags:
        if carrier.is_gone:
            await refuse_while_cloned(region, carrier)
            await _remove_disk(driver, region, volume)
        await driver.carriers.remove(region, carrier)
    elif carrier.is_gone:
        await driver.carriers.remove(region, carrier)


async def _remove_disk(driver: Driver, region: Region, volume: VolumeId) -> None:
    await driver.holders.sync(region)
    held = driver.holders.find(volume)
    if held is not None:
        raise HeldElsewhere(f"{volume} was deleted, yet guest {held.vmid} has it")
    await driver.stock.remove(region, volume)


async def end_volume(driver: Driver, region: Region, volume: VolumeId) -> bool:
    """
    Delete a volume that has a carrier; False if it has none.

    With snapshots it is only marked as gone, and its disk goes with the last of them.
    """
    async with driver.carriers.lock(volume):
        carrier = await driver.carriers.of(region, volume)
        if carrier is None:
            return False
        if driver.carriers.is_used(volume):
            raise UnderWay(f"{volume} is being cloned")
        await refuse_while_cloned(region, carrier)
        await end_passing(region, carrier)
        if await region.pve.snapshots.list(carrier.host, carrier.vmid):
            if not carrier.is_gone:
                await driver.carriers.bury(region, carrier)
            return True
        if CARRIER_TAG in carrier.config.tags:
            await _remove_disk(driver, region, volume)
        await driver.carriers.remove(region, carrier)
        return True


async def end_passing(region: Region, carrier: Carrier, *, before: int | None = None) -> None:
    """Snapshots that a cloning left behind which nobody asked for again."""
    left = [
        row.name
        for row in await region.pve.snapshots.list(carrier.host, carrier.vmid)
        if row.name.startswith(PASSING)
        and not note_in(row.description, "source")
        and (before is None or row.snaptime < before)
    ]
    for name in left:
        await drop(region, carrier, name)


async def refuse_while_cloned(region: Region, carrier: Carrier) -> None:
    """A clone that an earlier life of the driver began may still be reading the disk."""
    for row in await active_tasks.running(region, carrier.host, vmid=carrier.vmid):
        if row.type == "qmclone":
            raise UnderWay(f"a clone of guest {carrier.vmid} is being made")
