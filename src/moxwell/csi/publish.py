"""
Attaching volumes to guests and taking them off again.

In: a volume, a node, how it is to be used. Out: where the guest finds the disk, and by what it
knows it. Before anything is written the volume is claimed for the guest in the index of holders; if
another guest has it, that guest is looked at once more and then the call is refused. Only then is a
replicated volume brought to the guest's host, as moving one that is in use would lose it. The
surprise: what was promised while the volume was attached nowhere (a size, limits) comes true here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from moxwell.csi import expand, replication
from moxwell.csi.attach_plan import Attach, Detach
from moxwell.csi.attach_queue import NodeGone, Seat
from moxwell.csi.driver import Driver
from moxwell.csi.errors import HeldElsewhere, NotNow, WrongDisk
from moxwell.csi.ids import LEGACY_WWN, VolumeId, find_volume, get_volume
from moxwell.csi.nodes import Seated
from moxwell.csi.parameters import Params
from moxwell.errors import Missing, MoxwellError, Unreachable
from moxwell.pve import property_strings
from moxwell.pve.regions import Region


@dataclass(frozen=True, slots=True)
class Wanted:
    """A volume that is to be attached."""

    volume: str
    node: str
    read_only: bool = False
    context: Mapping[str, str] | None = None


async def publish(driver: Driver, wanted: Wanted) -> dict[str, str]:
    """Attach; answers what the node needs to find the disk and to be sure of it."""
    volume = get_volume(wanted.volume)
    region = await driver.region(volume.region)
    seated = await driver.nodes.find(wanted.node)
    if seated.region != volume.region:
        raise NotNow(f"{volume} is in region {volume.region}, the node in {seated.region}")
    host = await _reach(driver, region, volume, seated)
    await _claim(driver, region, volume, seated)
    entry = await driver.book.get(driver.book_key(volume))
    options = Params.of_context(wanted.context or {}, entry).drive(read_only=wanted.read_only)
    wish = Attach(volume.volid, volume.identity, options)
    try:
        if not volume.host:
            await replication.follow(driver, region, volume, host)
        seat = await driver.queues.ask(region, seated.vmid, wish)
    except MoxwellError as error:
        await _unclaim(driver, region, volume, seated, error)
        raise
    driver.holders.put(volume, seated.vmid, seat.slot)
    _verify(volume, seated, seat)
    await expand.keep_promises(driver, region, volume, entry, wanted.context or {}, seat)
    return _context(volume, seat)


async def _reach(driver: Driver, region: Region, volume: VolumeId, seated: Seated) -> str:
    """The host of the guest; a local disk can only be attached where it lies."""
    guest = region.inventory.find(seated.vmid)
    if guest is None or (volume.host and guest.host != volume.host):
        await region.inventory.refresh()
        guest = region.inventory.find(seated.vmid)
    if guest is None:
        if await region.inventory.is_gone(seated.vmid):
            raise NodeGone(f"there is no guest {seated.vmid} in region {region.name}")
        raise Unreachable(f"guest {seated.vmid} is not in the list of guests")
    if volume.host and guest.host != volume.host:
        raise NotNow(
            f"{volume} lies on host {volume.host}, but guest {seated.vmid} runs on {guest.host}: "
            f"migrate the guest back, or the volume with `moxwell volume migrate`"
        )
    if driver.carriers.is_gone(region, volume):
        raise Missing(f"{volume} was deleted; only its snapshots are left")
    return guest.host


async def _claim(driver: Driver, region: Region, volume: VolumeId, seated: Seated) -> None:
    await driver.holders.sync(region)
    other = driver.holders.claim(volume, seated.vmid)
    if other is not None:
        guest = region.inventory.find(other.vmid)
        if guest is not None and other.slot:
            await driver.holders.look(region, guest)
        else:
            driver.holders.forget_guest(region.name, other.vmid) if guest is None else None
        other = driver.holders.claim(volume, seated.vmid)
    if other is not None:
        node = driver.nodes.id_of(region.name, other.vmid)
        raise HeldElsewhere(f"{volume} is attached to node {node} (guest {other.vmid})")


async def _unclaim(
    driver: Driver, region: Region, volume: VolumeId, seated: Seated, error: MoxwellError
) -> None:
    """The attach failed: believe the guest, not the error."""
    if not isinstance(error, Unreachable):
        driver.holders.drop(volume, seated.vmid)
        guest = region.inventory.find(seated.vmid)
        if guest is not None and not isinstance(error, NodeGone):
            await driver.holders.look(region, guest)
    await driver.claims.tell_of(str(volume), volume.name.partition("-pvc-")[2], error)


def _verify(volume: VolumeId, seated: Seated, seat: Seat) -> None:
    if seated.uuid and seat.uuid and seated.uuid != seat.uuid:
        raise WrongDisk(f"guest {seated.vmid} has another system UUID than the node says")
    wwn = property_strings.parse(seat.drive).get("wwn", "").lower()
    if wwn not in ("", volume.identity.wwn) and not LEGACY_WWN.fullmatch(wwn):
        raise WrongDisk(f"{volume} is attached with the foreign WWN {wwn}")


def _context(volume: VolumeId, seat: Seat) -> dict[str, str]:
    """For the node; the first two are what proxmox-csi-plugin's node reads."""
    drive = property_strings.parse(seat.drive)
    wwn = drive.get("wwn", volume.identity.wwn).lower()
    return {
        "DevicePath": f"/dev/disk/by-id/wwn-{wwn}",
        "lun": seat.slot.removeprefix("scsi"),
        "wwn": wwn,
        "serial": drive.get("serial", ""),
    }


async def unpublish(driver: Driver, text: str, node: str) -> None:
    """Detach; what is not attached, or belongs to a guest that is gone, is detached already."""
    volume = find_volume(text)
    if volume is None:
        return
    region = await driver.region(volume.region)
    vmid = await _holder(driver, region, volume, node)
    if vmid is None:
        return
    try:
        await driver.queues.ask(region, vmid, Detach(volume.volid))
    except NodeGone:
        driver.holders.forget_guest(region.name, vmid)
    driver.holders.drop(volume, vmid)


async def _holder(driver: Driver, region: Region, volume: VolumeId, node: str) -> int | None:
    """The guest to take the volume from."""
    held = driver.holders.find(volume)
    if held is None:
        await driver.holders.sync(region)
        held = driver.holders.find(volume)
    if not node:
        return held.vmid if held else None
    try:
        seated = await driver.nodes.find(node)
    except Missing:
        if held is None or not held.slot:
            return None
        raise NotNow(
            f"node {node} is unknown, and guest {held.vmid} has {volume}: detach it there"
        ) from None
    return seated.vmid if seated.region == volume.region else None
