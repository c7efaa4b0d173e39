"""
Carriers and passing snapshots that a call left behind and nobody asked for again.

In: the carriers of a region. Out: the idle ones gone. An orchestrator repeats a call until it
succeeds, and then nothing is left; this is for one that was deleted itself in between. The
surprise: removing a carrier never removes a volume, as the disk does not bear the carrier's id.
"""

import structlog

from moxwell.csi import native_snapshots
from moxwell.csi.driver import Driver
from moxwell.csi.helper_vms import CARRIER_TAG
from moxwell.csi.ids import find_volume
from moxwell.errors import MoxwellError
from moxwell.pve.regions import Region

FIRST_SECONDS, EVERY_SECONDS = 300.0, 3600.0
OLD_SECONDS = 3600
log = structlog.get_logger(__name__)


async def sweeping(driver: Driver) -> None:
    """Sweep every region, again and again, for as long as it runs."""
    await driver.clock.sleep(FIRST_SECONDS)
    while True:
        for region in await driver.all_regions():
            await sweep(driver, region)
        await driver.clock.sleep(EVERY_SECONDS)


async def sweep(driver: Driver, region: Region) -> None:
    """One round; a carrier that cannot be looked at now is looked at in the next."""
    for guest in tuple(region.inventory.guests.values()):
        if CARRIER_TAG in guest.tags:
            try:
                await _look(driver, region, guest.vmid)
            except MoxwellError as error:
                log.info("carrier left alone", guest=guest.vmid, error=str(error))


async def _look(driver: Driver, region: Region, vmid: int) -> None:
    found = await driver.carriers.read(region, vmid)
    volume = find_volume(found.note("volume")) if found else None
    if found is None or volume is None:
        return  # a clone that has its parent's tags for a moment, or somebody else's guest
    async with driver.carriers.lock(volume):
        if driver.carriers.is_used(volume):
            return
        before = int(driver.clock.now().timestamp()) - OLD_SECONDS
        await native_snapshots.refuse_while_cloned(region, found)
        await native_snapshots.end_passing(region, found, before=before)
        await native_snapshots.tidy(driver, region, volume, found)
