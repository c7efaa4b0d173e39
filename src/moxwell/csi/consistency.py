"""
May a disk be copied now? Not while a running guest writes to it: the copy would be of no moment.
"""

from moxwell.csi.driver import Driver
from moxwell.csi.errors import NotNow
from moxwell.csi.ids import VolumeId
from moxwell.pve.regions import Region


async def refuse_if_written(driver: Driver, region: Region, source: VolumeId) -> None:
    """Raise if a guest that runs has the disk."""
    await driver.holders.sync(region)
    held = driver.holders.find(source)
    guest = region.inventory.find(held.vmid) if held else None
    if guest is not None and guest.running:
        raise NotNow(
            f"{source} is in use by guest {guest.vmid}, which is running: a copy would not be "
            "consistent. Stop the pods that use it, or allow whileAttached in the snapshot class"
        )
