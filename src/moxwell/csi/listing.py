"""
Lists volumes and published nodes, and computes capacity and volume health; only reads.

Capacity costs no request, because the inventory poll of each region contains it. Listing costs one
request per storage and host.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from moxwell.csi.disks import DiskInfo
from moxwell.csi.driver import Driver
from moxwell.csi.helper_vms import (
    COPY_TAG,
    DELETED_TAG,
    REFERENCE_TAG,
    SLOT,
    SNAPSHOT_TAG,
    HelperVM,
    current_tags,
)
from moxwell.csi.ids import VolumeId, is_snapshot_disk
from moxwell.csi.topology import REGION, ZONE, Segments, StorageLocation, locations_in
from moxwell.errors import Conflict, Missing, Unreachable
from moxwell.pve.ownership import is_helper_vm
from moxwell.pve.regions import Region

log = structlog.get_logger(__name__)


class BadToken(Conflict):
    """The starting_token is invalid."""

    reason = "BadToken"


def _storages(region: Region) -> dict[tuple[str, str], str]:
    """(host or "" if shared, storage) -> a host to query."""
    found: dict[tuple[str, str], str] = {}
    for (host, name), seen in sorted(region.inventory.storages.items()):
        up = region.inventory.hosts.get(host)
        if "images" in seen.content and seen.available and up is not None and up.online:
            found.setdefault(("" if seen.shared else host, name), host)
    return found


async def list_disks(driver: Driver) -> list[DiskInfo]:
    """All disks of the driver in every reachable region, sorted."""
    disks: list[DiskInfo] = []
    for region in await driver.all_regions():
        for host, storage in _storages(region):
            listed = await driver.disks.list(region, host, storage)
            disks += [d for d in listed if await driver.ownership.owns(region, d.id)]
        disks += await _disks_of_helper_vms(driver, region)
    return sorted(disks, key=lambda d: str(d.id))


async def _disks_of_helper_vms(driver: Driver, region: Region) -> list[DiskInfo]:
    """Replicated and cloned volumes, whose disks are owned by helper VMs."""
    found = []
    for guest in tuple(region.inventory.guests.values()):
        tags = current_tags(guest.tags)
        if not is_helper_vm(tags) or {REFERENCE_TAG, SNAPSHOT_TAG, DELETED_TAG} & tags:
            continue
        try:
            config = await region.reader.qemu.config(guest.host, guest.vmid)
        except (Missing, Unreachable) as error:
            log.info("helper VM skipped", guest=guest.vmid, error=str(error))
            continue
        vm = HelperVM(guest.vmid, guest.host, config)
        if not await driver.ownership.owns_vm(region, vm):
            continue
        volume = vm.volume_id(region)
        if COPY_TAG not in tags:
            volume = replace(volume, host="")
        if volume.disk:
            found.append(DiskInfo(volume, config.size_bytes(SLOT)))
    return found


async def list_volumes(driver: Driver) -> list[tuple[DiskInfo, str]]:
    """Volumes without snapshots, each with its published node id or ""."""
    for region in await driver.all_regions():
        await driver.attachments.sync(region)
    return [
        (disk, published_node(driver, disk.id))
        for disk in await list_disks(driver)
        if not is_snapshot(disk.id)
        and not driver.helper_vms.is_deleted(driver.regions[disk.id.region], disk.id)
    ]


def is_snapshot(volume: VolumeId) -> bool:
    return is_snapshot_disk(volume.disk)


def published_node(driver: Driver, volume: VolumeId) -> str:
    """The node id to which a volume is published."""
    attachment = driver.attachments.find(volume)
    if attachment is None or not attachment.slot:
        return ""
    return driver.nodes.id_of(volume.region, attachment.vmid)


def page(total: int, token: str, max_entries: int) -> tuple[int, int, str]:
    """First and last index and the next token of a page."""
    if token and not (token.isdigit() and int(token) <= total):
        raise BadToken(f"starting_token {token!r} is invalid")
    first = int(token or 0)
    last = min(total, first + max_entries) if max_entries else total
    return first, last, str(last) if last < total else ""


async def capacity(
    driver: Driver, given: Mapping[str, str], segments: Segments | None
) -> tuple[int, int]:
    """Free bytes for a StorageClass in a topology segment, and the largest possible volume."""
    name, required = given.get("storage", ""), segments or {}
    locations: list[StorageLocation] = []
    for region in await driver.all_regions():
        if required.get(REGION, region.name) != region.name:
            continue
        names = {name} if name else {s for _, s in region.inventory.storages}
        for storage in sorted(names):
            locations += _distinct(locations_in(region, storage, _hosts(region, required)))
    free = [p.storage.free_bytes for p in locations]
    return sum(free), max(free, default=0)


def _hosts(region: Region, segments: Segments) -> Sequence[str] | None:
    zone = segments.get(ZONE)
    return region.config.hosts_of(zone) if zone else None


def _distinct(locations: Sequence[StorageLocation]) -> list[StorageLocation]:
    """Count a shared storage once."""
    shared = [p for p in locations if p.storage.shared][:1]
    return [*shared, *(p for p in locations if not p.storage.shared)]


async def health(driver: Driver, volume: VolumeId) -> list[tuple[str, str]]:
    """The reasons why a volume is inaccessible, as (reason, message)."""
    region = await driver.own(volume)
    up = region.inventory.hosts.get(volume.host)
    if volume.host and (up is None or not up.online):
        return [("HostDown", f"host {volume.host} of region {region.name} is offline")]
    if not locations_in(region, volume.storage, [volume.host] if volume.host else None):
        return [("StorageUnavailable", f"no online host has storage {volume.storage}")]
    await driver.read_disk(region, volume)
    return []
