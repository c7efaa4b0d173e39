"""
Deletes helper VMs and temporary snapshots that an abandoned call left behind.

An orchestrator normally repeats a call until it succeeds, and then nothing remains. Destroying a
reference helper VM never destroys a volume, because the disk's name has another VMID.
"""

import structlog

from moxwell.csi import native_snapshots
from moxwell.csi.driver import Driver
from moxwell.csi.helper_vms import REFERENCE_TAG, current_tags
from moxwell.csi.ids import find_volume
from moxwell.errors import MoxwellError
from moxwell.pve.audit import acting
from moxwell.pve.regions import Region

FIRST_DELAY_SECONDS, INTERVAL_SECONDS = 300.0, 3600.0
MIN_AGE_SECONDS = 3600
log = structlog.get_logger(__name__)


async def run_forever(driver: Driver) -> None:
    """Collect in every region periodically, until cancelled."""
    await driver.clock.sleep(FIRST_DELAY_SECONDS)
    while True:
        for region in await driver.all_regions():
            await collect(driver, region)
        await driver.clock.sleep(INTERVAL_SECONDS)


async def collect(driver: Driver, region: Region) -> None:
    """Collect once in a region; a helper VM with errors is retried next time."""
    for guest in tuple(region.inventory.guests.values()):
        if REFERENCE_TAG in current_tags(guest.tags):
            try:
                with acting("csi.garbage", f"{region.name}/{guest.vmid}"):
                    await _collect_one(driver, region, guest.vmid)
            except MoxwellError as error:
                log.info("helper VM not collected", guest=guest.vmid, error=str(error))


async def _collect_one(driver: Driver, region: Region, vmid: int) -> None:
    found = await driver.helper_vms.read(region, vmid)
    volume = find_volume(found.field("volume")) if found else None
    if found is None or volume is None:
        return  # a clone that still has its source's tags, or a foreign guest
    if not await driver.ownership.owns_vm(region, found):
        return
    async with driver.helper_vms.lock(volume):
        if driver.helper_vms.is_in_use(volume):
            return
        before = int(driver.clock.now().timestamp()) - MIN_AGE_SECONDS
        await native_snapshots.refuse_while_cloned(region, found)
        await native_snapshots.delete_temporary(region, found, before=before)
        await native_snapshots.clean_up(driver, region, volume, found)
