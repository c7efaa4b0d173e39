"""
Replicated volumes: local ZFS disks with Proxmox replication jobs to other hosts.

A helper VM owns the disk, and its replication jobs keep the replicas. Before an attach the helper
VM is migrated to the host of the pod's guest, which is fast because that host has a replica. The
helper VM and the node's guest then reference the same disk; the helper VM never runs.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from moxwell.csi import steps
from moxwell.csi.driver import Driver
from moxwell.csi.errors import FailedPrecondition, InsufficientCapacity, OperationPending
from moxwell.csi.helper_vms import (
    COPY_TAG,
    REFERENCE_TAG,
    REPLICA_TAG,
    SLOT,
    SNAPSHOT_TAG,
    HelperVM,
    HelperVMRequest,
    guest_name,
)
from moxwell.csi.ids import VolumeId, disk_name
from moxwell.csi.parameters import VolumeParameters
from moxwell.csi.steps import HelperVMRef, HelperVMStep
from moxwell.csi.topology import REGION, ZONE, StorageLocation
from moxwell.errors import Invalid, Missing
from moxwell.pve.endpoints.cluster import ReplicationJob
from moxwell.pve.ownership import HELPER_VM_TAG, Mark, is_helper_vm
from moxwell.pve.regions import Region

if TYPE_CHECKING:
    from moxwell.csi.create import CreatedVolume

MAX_REPLICAS = 2
log = structlog.get_logger(__name__)


async def create(
    driver: Driver,
    name: str,
    params: VolumeParameters,
    locations: Sequence[StorageLocation],
    size: int,
) -> "CreatedVolume":
    """Create helper VM, disk and replication jobs; each part is reused if it exists."""
    from moxwell.csi.create import CreatedVolume

    zones = params.zones
    if not zones or len(zones) > MAX_REPLICAS + 1:
        raise Invalid(f"replicateZones must name one to {MAX_REPLICAS + 1} hosts")
    fitting = [p for p in locations if p.storage.type == "zfspool"]
    if not fitting:
        raise InsufficientCapacity("replication needs a storage of type zfspool")
    location = next((p for p in fitting if p.host in zones), fitting[0])
    _check_zones(location, zones)
    region, mark = location.region, driver.helper_vms.mark(location.region.name, name)
    vm = await _ensure_vm(driver, region, location.host, name, mark)
    disk_file = await _disk_file(driver, vm, name)
    volume = VolumeId(region.name, "", location.storage.name, disk_file)
    disk = await driver.disks.allocate(region, vm.host, volume, size, owner=vm.vmid)
    await _add_disk(region, vm, disk.id, mark)
    targets = [z for z in zones if z != vm.host]
    for number, target in enumerate(targets):
        step = steps.EnsureReplicationJob(
            vm=vm.ref(region),
            job=f"{vm.vmid}-{number}",
            target=target,
            schedule=params.text("replicateSchedule"),
        )
        await steps.run(region, step)
    zone_names = sorted({region.zone_of(h) for h in (vm.host, *targets)})
    segments = tuple({REGION: region.name, ZONE: z} for z in zone_names)
    return CreatedVolume(disk.id, disk.size, segments, params.context)


async def _disk_file(driver: Driver, vm: HelperVM, name: str) -> str:
    """The name of the disk; a helper VM of an earlier version has one without tenant key."""
    used = vm.volid.partition(":")[2]
    return used or disk_name(vm.vmid, name, tenant=await driver.ownership.key())


def _check_zones(location: StorageLocation, zones: Sequence[str]) -> None:
    """Raise Invalid unless every host exists and has the storage."""
    inventory, storage = location.region.inventory, location.storage.name
    unknown = [z for z in zones if z not in inventory.hosts]
    if unknown:
        raise Invalid(f"replicateZones names {', '.join(unknown)}: no such host in the region")
    without = [z for z in zones if inventory.storage(z, storage) is None]
    if without:
        raise Invalid(f"replicateZones: {', '.join(without)} does not have storage {storage}")


async def _ensure_vm(driver: Driver, region: Region, host: str, name: str, mark: Mark) -> HelperVM:
    """The helper VM of a replicated volume, created if missing."""
    await region.inventory.refresh()
    found = await driver.helper_vms.find(region, mark)
    if found is not None:
        await driver.ownership.refuse_vm(region, found)
    if found is None:
        description = mark.describe(
            f"csi-tenant={await driver.ownership.key()}\n"
            f"Owns the disk of a replicated Kubernetes volume; never started.\ncsi-name={name}"
        )
        config: dict[str, str | int] = {
            "name": guest_name(f"csi-{name}"),
            "tags": mark.tags((HELPER_VM_TAG, REPLICA_TAG)),
            "protection": 1,
        }

        def step(vm: HelperVMRef) -> HelperVMStep:
            return steps.CreateHelperVM(vm=vm, description=description, config=config)

        request = HelperVMRequest(mark, host, REPLICA_TAG, 0, step)
        found = await driver.helper_vms.create(region, request)
    await driver.helper_vms.finish(mark)
    return found


async def _add_disk(region: Region, vm: HelperVM, volume: VolumeId, mark: Mark) -> None:
    """Add the disk to the configuration of its helper VM."""
    config = await region.reader.qemu.config(vm.host, vm.vmid)
    if mark.line not in config.description:
        raise FailedPrecondition(f"guest {vm.vmid} is not the helper VM of {volume}")
    if config.slot_of(volume.volid) is None:
        drive = f"{volume.volid},backup=1,replicate=1"
        step = steps.ConfigureHelperVM(
            vm=HelperVM(vm.vmid, vm.host, config).ref(region),
            changes={SLOT: drive},
            digest=config.digest,
        )
        await steps.run(region, step)


async def find_vm(driver: Driver, region: Region, volume: VolumeId) -> HelperVM | None:
    """The helper VM of a replicated volume; None for other volumes."""
    if not driver.helper_vms.is_owner(volume):
        return None
    guest = region.inventory.find(volume.owner)
    if guest is None:
        return None
    try:
        config = await region.reader.qemu.config(guest.host, guest.vmid)
    except Missing:
        return None
    vm = HelperVM(guest.vmid, guest.host, config)
    is_other_kind = bool({REFERENCE_TAG, COPY_TAG, SNAPSHOT_TAG} & vm.tags)
    has_disk = config.slot_of(volume.volid) is not None
    return vm if is_helper_vm(config.tags) and has_disk and not is_other_kind else None


async def migrate_to(driver: Driver, region: Region, volume: VolumeId, host: str) -> None:
    """Migrate the helper VM of a replicated volume to a host; other volumes are unchanged."""
    seen = region.inventory.storage(host, volume.storage)
    if seen is not None and seen.shared:
        return
    vm = await _reachable_vm(driver, region, volume, host)
    if vm is None or vm.host == host:
        return
    await steps.run(region, steps.MigrateHelperVM(vm=vm.ref(region), target=host))
    region.inventory.learn(vm.vmid, host=host)


async def _reachable_vm(
    driver: Driver, region: Region, volume: VolumeId, host: str
) -> HelperVM | None:
    guest = region.inventory.find(volume.owner) if driver.helper_vms.is_owner(volume) else None
    up = region.inventory.hosts.get(guest.host) if guest is not None else None
    if guest is not None and is_helper_vm(guest.tags) and (up is None or not up.online):
        raise FailedPrecondition(
            f"host {guest.host}, which has the latest data of {volume}, is offline; {host} has a "
            f"replica of the last replication. If {guest.host} will not return, use the replica: "
            f"on any host of the cluster, "
            f"mv /etc/pve/nodes/{guest.host}/qemu-server/{guest.vmid}.conf "
            f"/etc/pve/nodes/{host}/qemu-server/"
        )
    return await find_vm(driver, region, volume)


async def set_schedule(driver: Driver, region: Region, volume: VolumeId, schedule: str) -> None:
    """Change the schedule of a volume's replication jobs."""
    vm = await find_vm(driver, region, volume)
    if vm is None:
        return
    for job in await region.reader.replication.list():
        if job.guest == vm.vmid:
            step = steps.SetReplicationSchedule(vm=vm.ref(region), job=job.id, schedule=schedule)
            await steps.run(region, step)


async def delete(driver: Driver, region: Region, volume: VolumeId) -> bool:
    """Delete a replicated volume with jobs and replicas; returns False for other volumes."""
    vm = await find_vm(driver, region, volume)
    if vm is None:
        return False
    for job in await region.reader.replication.list():
        if job.guest == vm.vmid:
            await _delete_job(region, vm, job)
    if any(job.guest == vm.vmid for job in await region.reader.replication.list()):
        raise OperationPending(f"the replicas of {volume} are being deleted")
    config = await region.reader.qemu.config(vm.host, vm.vmid)
    await driver.helper_vms.destroy(region, HelperVM(vm.vmid, vm.host, config))
    return True


async def _delete_job(region: Region, vm: HelperVM, job: ReplicationJob) -> None:
    """Delete a job and its replica; a replica on an offline host remains."""
    up = region.inventory.hosts.get(job.target)
    offline = up is None or not up.online
    if offline:
        log.warning("replica not deleted", job=job.id, host=job.target)
    step = steps.DeleteReplicationJob(vm=vm.ref(region), job=job.id, force=offline)
    await steps.run(region, step)
