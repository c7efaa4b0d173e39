"""
Volumes with copies on other hosts, by Proxmox's own replication (ZFS only).

In: a volume whose class says ``replicate``. Out: a guest that never runs, a *shell*, which carries
the disk and whose replication jobs keep the copies. To follow a pod to another host the shell is
migrated there, which is quick because the copy is already there. The surprise: the shell and the
node's guest name the same disk; only the shell never opens it, and only the shell owns it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from moxwell.csi.driver import Driver
from moxwell.csi.errors import NoRoom, NotNow, UnderWay
from moxwell.csi.helper_vms import (
    CARRIER_TAG,
    COPY_TAG,
    REPLICA_TAG,
    SNAPSHOT_TAG,
    Birth,
    Carrier,
    guest_name,
)
from moxwell.csi.ids import VolumeId, disk_name
from moxwell.csi.parameters import Params
from moxwell.csi.topology import REGION, ZONE, Place
from moxwell.errors import Invalid, Missing
from moxwell.pve import errors
from moxwell.pve.endpoints.cluster import Replica
from moxwell.pve.ownership import SHELL_TAG, Mark
from moxwell.pve.regions import Region
from moxwell.pve.values import Upid

if TYPE_CHECKING:
    from moxwell.csi.create import Made

SLOT = "scsi1"
MOST_ZONES = 2
log = structlog.get_logger(__name__)


async def create(
    driver: Driver, name: str, params: Params, places: Sequence[Place], size: int
) -> "Made":
    """A replicated volume: shell, disk and jobs; each step finds what an earlier try left."""
    from moxwell.csi.create import Made

    zones = params.zones
    if not zones or len(zones) > MOST_ZONES + 1:
        raise Invalid(f"replicateZones must name one to {MOST_ZONES + 1} hosts")
    fitting = [p for p in places if p.storage.type == "zfspool"]
    if not fitting:
        raise NoRoom("replication needs a storage of type zfspool")
    place = next((p for p in fitting if p.host in zones), fitting[0])
    _check_zones(place, zones)
    region, mark = place.region, driver.carriers.mark(place.region.name, name)
    vmid, host = await _shell(driver, region, place.host, name, mark)
    disk = disk_name(vmid, name)
    wanted = VolumeId(region.name, "", place.storage.name, disk)
    made = await driver.stock.make(region, host, wanted, size, owner=vmid)
    await _dress(region, host, vmid, made.id, mark)
    hosts = [z for z in zones if z != host]
    for number, target in enumerate(hosts):
        await _job(region, f"{vmid}-{number}", target, params.text("replicateSchedule"))
    zones_of = sorted({region.zone_of(h) for h in (host, *hosts)})
    segments = tuple({REGION: region.name, ZONE: z} for z in zones_of)
    return Made(made.id, made.size, segments, params.context)


def _check_zones(place: Place, zones: Sequence[str]) -> None:
    """Every host must be there and have the storage, before anything is made."""
    inventory, storage = place.region.inventory, place.storage.name
    unknown = [z for z in zones if z not in inventory.hosts]
    if unknown:
        raise Invalid(f"replicateZones names {', '.join(unknown)}: no such host in the region")
    bare = [z for z in zones if inventory.storage(z, storage) is None]
    if bare:
        raise Invalid(f"replicateZones: storage {storage} is not on {', '.join(bare)}")


async def _shell(
    driver: Driver, region: Region, host: str, name: str, mark: Mark
) -> tuple[int, str]:
    """The shell of a volume: found by its mark, or made."""
    await region.inventory.refresh()
    found = await driver.carriers.find(region, mark)
    if found is None:
        settings: dict[str, str | int] = {
            "name": guest_name(f"csi-{name}"),
            "description": mark.describe(
                f"Carries a replicated Kubernetes volume; never started.\ncsi-name={name}"
            ),
            "tags": mark.tags((SHELL_TAG, REPLICA_TAG)),
            "protection": 1,
        }

        async def start(vmid: int) -> Upid:
            return await region.pve.qemu.create(host, vmid, settings)

        birth = Birth(mark, host, REPLICA_TAG, 0, start)
        found = await driver.carriers.bear(region, birth)
    await driver.carriers.born(mark)
    return found.vmid, found.host


async def _dress(region: Region, host: str, vmid: int, volume: VolumeId, mark: Mark) -> None:
    """Give the shell its disk."""
    config = await region.pve.qemu.config(host, vmid)
    if mark.line not in config.description:
        raise NotNow(f"guest {vmid} is not the shell of {volume}; it is left alone")
    if config.slot_of(volume.volid) is None:
        drive = f"{volume.volid},backup=1,replicate=1"
        await region.pve.qemu.configure(host, vmid, {SLOT: drive}, digest=config.digest)


async def _job(region: Region, job: str, target: str, schedule: str) -> None:
    try:
        await region.pve.replication.create(job, target, schedule=schedule)
    except errors.Exists:
        await region.pve.replication.update(job, schedule=schedule)


async def _done(region: Region, upid: Upid | None) -> None:
    if upid is not None:
        ended = await region.tasks.wait_ended(upid)
        if ended.error is not None:
            raise ended.error


async def find_shell(driver: Driver, region: Region, volume: VolumeId) -> tuple[int, str] | None:
    """The shell that carries a volume, or None for a volume without one."""
    if volume.owner in (0, driver.settings.owner):
        return None
    guest = region.inventory.find(volume.owner)
    if guest is None:
        return None
    try:
        config = await region.pve.qemu.config(guest.host, guest.vmid)
    except Missing:
        return None
    others = {CARRIER_TAG, COPY_TAG, SNAPSHOT_TAG} & {*config.tags}
    ours = SHELL_TAG in config.tags and config.slot_of(volume.volid) is not None and not others
    return (guest.vmid, guest.host) if ours else None


async def follow(driver: Driver, region: Region, volume: VolumeId, host: str) -> None:
    """Bring a replicated volume to a host; what every host sees needs no bringing."""
    seen = region.inventory.storage(host, volume.storage)
    if seen is not None and seen.shared:
        return
    shell = await _reachable_shell(driver, region, volume, host)
    if shell is None or shell[1] == host:
        return
    await _done(region, await region.pve.qemu.migrate(shell[1], shell[0], host))
    region.inventory.learn(shell[0], host=host)


async def _reachable_shell(
    driver: Driver, region: Region, volume: VolumeId, host: str
) -> tuple[int, str] | None:
    guest = region.inventory.find(volume.owner) if driver.carriers.owns(volume) else None
    up = region.inventory.hosts.get(guest.host) if guest is not None else None
    if guest is not None and SHELL_TAG in guest.tags and (up is None or not up.online):
        raise NotNow(
            f"host {guest.host}, where {volume} was last written, is down; {host} has a copy as "
            f"old as the last replication. If {guest.host} will not come back, take it: on any "
            f"host of the cluster, mv /etc/pve/nodes/{guest.host}/qemu-server/{guest.vmid}.conf "
            f"/etc/pve/nodes/{host}/qemu-server/"
        )
    return await find_shell(driver, region, volume)


async def reschedule(driver: Driver, region: Region, volume: VolumeId, schedule: str) -> None:
    """Change how often the copies are brought up to date."""
    shell = await find_shell(driver, region, volume)
    for job in await region.pve.replication.list() if shell else ():
        if shell and job.guest == shell[0]:
            await region.pve.replication.update(job.id, schedule=schedule)


async def delete(driver: Driver, region: Region, volume: VolumeId) -> bool:
    """Remove a replicated volume with its copies, jobs and shell; False if it is not one."""
    shell = await find_shell(driver, region, volume)
    if shell is None:
        return False
    vmid, host = shell
    for job in await region.pve.replication.list():
        if job.guest == vmid:
            await _end_job(region, job)
    if any(job.guest == vmid for job in await region.pve.replication.list()):
        raise UnderWay(f"the copies of {volume} are being removed from the other hosts")
    config = await region.pve.qemu.config(host, vmid)
    await driver.carriers.remove(region, Carrier(vmid, host, config))
    return True


async def _end_job(region: Region, job: Replica) -> None:
    """Proxmox removes the copies, then the job; of a host that is down it can do neither."""
    up = region.inventory.hosts.get(job.target)
    lost = up is None or not up.online
    if lost:
        log.warning("a copy stays behind on a host that is down", job=job.id, host=job.target)
    await region.pve.replication.delete(job.id, force=lost or None)
