"""Refuses full copies of a disk that a running guest uses, because they would be inconsistent."""

from moxwell.csi.driver import Driver
from moxwell.csi.errors import FailedPrecondition
from moxwell.csi.ids import VolumeId
from moxwell.pve.regions import Region


async def refuse_if_in_use(driver: Driver, region: Region, source: VolumeId) -> None:
    """Raise FailedPrecondition if the disk is attached to a running guest."""
    await driver.attachments.sync(region)
    attachment = driver.attachments.find(source)
    guest = region.inventory.find(attachment.vmid) if attachment else None
    if guest is not None and guest.running:
        raise FailedPrecondition(
            f"{source} is attached to the running guest {guest.vmid}: a copy is inconsistent. "
            "Stop the pods that use it, or set whileAttached: copy in the VolumeSnapshotClass"
        )
