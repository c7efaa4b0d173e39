"""
ControllerPublishVolume and ControllerUnpublishVolume: attaches volumes to guests and detaches them.

Before any write, the volume is reserved for the guest in the attachment index; if another guest has
it, that guest is read again and then the call is refused. Only after that is a replicated volume
migrated to the guest's host. Sizes and options that were requested while the volume was detached
are applied here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from moxwell.csi import expand, replication
from moxwell.csi.attach_plan import AttachRequest, DetachRequest
from moxwell.csi.attach_queue import AttachedDisk, NodeNotFound
from moxwell.csi.driver import Driver
from moxwell.csi.errors import AttachedElsewhere, DeviceMismatch, FailedPrecondition
from moxwell.csi.ids import LEGACY_WWN, VolumeId, find_volume, get_volume
from moxwell.csi.nodes import NodeGuest
from moxwell.csi.parameters import VolumeParameters
from moxwell.errors import Missing, MoxwellError, Unreachable
from moxwell.pve import property_strings
from moxwell.pve.regions import Region


@dataclass(frozen=True, slots=True)
class PublishVolumeOptions:
    """The parameters of ControllerPublishVolume."""

    volume: str
    node: str
    read_only: bool = False
    context: Mapping[str, str] | None = None


async def publish(driver: Driver, request: PublishVolumeOptions) -> dict[str, str]:
    """Attach a volume; returns the publish context, by which the node finds the disk."""
    volume = get_volume(request.volume)
    region = await driver.own(volume)
    node = await driver.nodes.find(request.node)
    if node.region != volume.region:
        raise FailedPrecondition(
            f"{volume} is in region {volume.region}, the node in {node.region}"
        )
    host = await _host_of(driver, region, volume, node)
    await _reserve(driver, region, volume, node)
    context = request.context or {}
    entry = await driver.journal.get(driver.journal_key(volume))
    options = VolumeParameters.of_context(context, entry).drive(read_only=request.read_only)
    try:
        if not volume.host:
            await replication.migrate_to(driver, region, volume, host)
        attach = AttachRequest(volume.volid, volume.identity, options)
        disk = await driver.queues.submit(region, node.vmid, attach)
    except MoxwellError as error:
        await _release(driver, region, volume, node, error)
        raise
    driver.attachments.set(volume, node.vmid, disk.slot)
    _verify(volume, node, disk)
    await expand.apply_deferred_size(driver, region, volume, entry, context, disk)
    return _publish_context(volume, disk)


async def _host_of(driver: Driver, region: Region, volume: VolumeId, node: NodeGuest) -> str:
    """The host of the guest; raises unless it is the host of a local disk."""
    guest = region.inventory.find(node.vmid)
    if guest is None or (volume.host and guest.host != volume.host):
        await region.inventory.refresh()
        guest = region.inventory.find(node.vmid)
    if guest is None:
        if await region.inventory.is_gone(node.vmid):
            raise NodeNotFound(f"guest {node.vmid} does not exist in region {region.name}")
        raise Unreachable(f"guest {node.vmid} is not in the inventory")
    if volume.host and guest.host != volume.host:
        raise FailedPrecondition(
            f"{volume} is on host {volume.host}, but guest {node.vmid} runs on {guest.host}: "
            f"migrate the guest back, or the volume with `moxwell volume migrate`"
        )
    if driver.helper_vms.is_deleted(region, volume):
        raise Missing(f"{volume} is deleted; only its snapshots exist")
    return guest.host


async def _reserve(driver: Driver, region: Region, volume: VolumeId, node: NodeGuest) -> None:
    await driver.attachments.sync(region)
    other = driver.attachments.reserve(volume, node.vmid)
    if other is not None:
        guest = region.inventory.find(other.vmid)
        if guest is None:
            driver.attachments.remove_guest(region.name, other.vmid)
        elif other.slot:
            await driver.attachments.read(region, guest)
        other = driver.attachments.reserve(volume, node.vmid)
    if other is not None:
        node_id = driver.nodes.id_of(region.name, other.vmid)
        raise AttachedElsewhere(f"{volume} is attached to node {node_id} (guest {other.vmid})")


async def _release(
    driver: Driver, region: Region, volume: VolumeId, node: NodeGuest, error: MoxwellError
) -> None:
    """Release the reservation after a failed attach and read the guest's real configuration."""
    if not isinstance(error, Unreachable):
        driver.attachments.remove(volume, node.vmid)
        guest = region.inventory.find(node.vmid)
        if guest is not None and not isinstance(error, NodeNotFound):
            await driver.attachments.read(region, guest)
    await driver.persistent_volumes.warn_for_volume(
        str(volume), volume.name.partition("-pvc-")[2], error
    )


def _verify(volume: VolumeId, node: NodeGuest, disk: AttachedDisk) -> None:
    if node.uuid and disk.uuid and node.uuid != disk.uuid:
        raise DeviceMismatch(f"the system UUID of guest {node.vmid} is not that of the node")
    wwn = property_strings.parse(disk.drive).get("wwn", "").lower()
    if wwn not in ("", volume.identity.wwn) and not LEGACY_WWN.fullmatch(wwn):
        raise DeviceMismatch(f"{volume} is attached with the foreign WWN {wwn}")


def _publish_context(volume: VolumeId, disk: AttachedDisk) -> dict[str, str]:
    """The publish context; the node plugin of proxmox-csi-plugin reads the first two keys."""
    drive = property_strings.parse(disk.drive)
    wwn = drive.get("wwn", volume.identity.wwn).lower()
    return {
        "DevicePath": f"/dev/disk/by-id/wwn-{wwn}",
        "lun": disk.slot.removeprefix("scsi"),
        "wwn": wwn,
        "serial": drive.get("serial", ""),
    }


async def unpublish(driver: Driver, text: str, node: str) -> None:
    """Detach a volume; succeeds if it is not attached or the guest does not exist."""
    volume = find_volume(text)
    if volume is None:
        return
    region = await driver.region(volume.region)
    vmid = await _guest_to_detach(driver, region, volume, node)
    if vmid is None or not await _is_attached(driver, region, volume, vmid):
        return
    await driver.ownership.prove(region, volume)
    try:
        await driver.queues.submit(region, vmid, DetachRequest(volume.volid))
    except NodeNotFound:
        driver.attachments.remove_guest(region.name, vmid)
    driver.attachments.remove(volume, vmid)


async def _is_attached(driver: Driver, region: Region, volume: VolumeId, vmid: int) -> bool:
    """Return False only for a foreign volume that the guest does not have; reads only."""
    if await driver.ownership.owns(region, volume):
        return True
    await driver.attachments.sync(region)
    attachment = driver.attachments.find(volume)
    return attachment is not None and attachment.vmid == vmid


async def _guest_to_detach(
    driver: Driver, region: Region, volume: VolumeId, node: str
) -> int | None:
    """The VMID of the node, or without a node id that of the guest with the volume."""
    attachment = driver.attachments.find(volume)
    if attachment is None:
        await driver.attachments.sync(region)
        attachment = driver.attachments.find(volume)
    if not node:
        return attachment.vmid if attachment else None
    try:
        found = await driver.nodes.find(node)
    except Missing:
        if attachment is None or not attachment.slot:
            return None
        raise FailedPrecondition(
            f"node {node} is unknown and {volume} is attached to guest {attachment.vmid}: "
            "detach it there"
        ) from None
    return found.vmid if found.region == volume.region else None
