"""
What there is: all volumes, one volume, free space.

In: the storages that the inventory knows. Out: disks of the driver, who has them, and how much room
is left where. The surprise: free space costs no request at all, as the one poll of each region
already tells it; a list of volumes costs one request per storage and host, however many there are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from moxwell.csi.disks import Disk
from moxwell.csi.driver import Driver
from moxwell.csi.helper_vms import CARRIER_TAG, COPY_TAG, GONE_TAG, SLOT, SNAPSHOT_TAG, Carrier
from moxwell.csi.ids import VolumeId, is_snapshot_disk
from moxwell.csi.topology import REGION, ZONE, Place, Segments, places_in
from moxwell.errors import Conflict, Missing, Unreachable
from moxwell.pve.ownership import SHELL_TAG
from moxwell.pve.regions import Region

log = structlog.get_logger(__name__)


class BadToken(Conflict):
    """A list cannot be continued from there."""

    reason = "BadToken"


def _shelves(region: Region) -> dict[tuple[str, str], str]:
    """(host or "", storage) -> a host to ask."""
    found: dict[tuple[str, str], str] = {}
    for (host, name), seen in sorted(region.inventory.storages.items()):
        up = region.inventory.hosts.get(host)
        if "images" in seen.content and seen.available and up is not None and up.online:
            found.setdefault(("" if seen.shared else host, name), host)
    return found


async def list_disks(driver: Driver) -> list[Disk]:
    """Every disk of the driver in every region that answers, in a stable order."""
    disks: list[Disk] = []
    for region in await driver.all_regions():
        for host, storage in _shelves(region):
            disks += await driver.stock.list(region, host, storage)
        disks += await _carried(region)
    return sorted(disks, key=lambda d: str(d.id))


async def _carried(region: Region) -> list[Disk]:
    """Replicated and cloned volumes: guests of ours own them, which are known by their tags."""
    found = []
    for guest in tuple(region.inventory.guests.values()):
        if SHELL_TAG not in guest.tags or {CARRIER_TAG, SNAPSHOT_TAG, GONE_TAG} & {*guest.tags}:
            continue
        try:
            config = await region.pve.qemu.config(guest.host, guest.vmid)
        except (Missing, Unreachable) as error:
            log.info("carrier left out", guest=guest.vmid, error=str(error))
            continue
        carrier = Carrier(guest.vmid, guest.host, config)
        volume = carrier.disk_id(region)
        if COPY_TAG not in guest.tags:
            volume = replace(volume, host="")
        if volume.disk:
            found.append(Disk(volume, config.size_bytes(SLOT)))
    return found


async def list_volumes(driver: Driver) -> list[tuple[Disk, str]]:
    """Volumes (not snapshots) with the node that has each, or none."""
    for region in await driver.all_regions():
        await driver.holders.sync(region)
    return [
        (disk, holder(driver, disk.id))
        for disk in await list_disks(driver)
        if not is_snapshot(disk.id)
        and not driver.carriers.is_gone(driver.regions[disk.id.region], disk.id)
    ]


def is_snapshot(volume: VolumeId) -> bool:
    return is_snapshot_disk(volume.disk)


def holder(driver: Driver, volume: VolumeId) -> str:
    """The node id of whoever has a volume."""
    held = driver.holders.find(volume)
    return driver.nodes.id_of(volume.region, held.vmid) if held and held.slot else ""


def page(total: int, token: str, most: int) -> tuple[int, int, str]:
    """First, last and the token of the next page."""
    if token and not (token.isdigit() and int(token) <= total):
        raise BadToken(f"no list continues at {token!r}")
    first = int(token or 0)
    last = min(total, first + most) if most else total
    return first, last, str(last) if last < total else ""


async def capacity(
    driver: Driver, given: Mapping[str, str], segments: Segments | None
) -> tuple[int, int]:
    """Bytes free for a class in a segment, and the largest volume that fits."""
    name, wanted = given.get("storage", ""), segments or {}
    places: list[Place] = []
    for region in await driver.all_regions():
        if wanted.get(REGION, region.name) != region.name:
            continue
        names = {name} if name else {s for _, s in region.inventory.storages}
        for storage in sorted(names):
            places += _distinct(places_in(region, storage, _hosts(region, wanted)))
    free = [p.storage.free_bytes for p in places]
    return sum(free), max(free, default=0)


def _hosts(region: Region, wanted: Segments) -> Sequence[str] | None:
    zone = wanted.get(ZONE)
    return region.config.hosts_of(zone) if zone else None


def _distinct(places: Sequence[Place]) -> list[Place]:
    """A shared storage counts once, however many hosts see it."""
    shared = [p for p in places if p.storage.shared][:1]
    return [*shared, *(p for p in places if not p.storage.shared)]


async def health(driver: Driver, volume: VolumeId) -> list[tuple[str, str]]:
    """Why a volume cannot be reached: (reason, text); empty if it can."""
    region = await driver.region(volume.region)
    up = region.inventory.hosts.get(volume.host)
    if volume.host and (up is None or not up.online):
        return [("HostDown", f"host {volume.host} of region {region.name} is not online")]
    seeing = places_in(region, volume.storage, [volume.host] if volume.host else None)
    if not seeing:
        return [("StorageUnavailable", f"no host that is online has storage {volume.storage}")]
    await driver.look(region, volume)
    return []
