"""
Native snapshots of a storage, made by snapshots of the helper VM that has the disk.

Ceph, LVM and ZFS destroy the snapshots of a disk with the disk. So a deleted volume keeps its disk
until its last snapshot is deleted. A Ceph snapshot with linked clones cannot be deleted. Proxmox
locks the guest before it finds that out, and only root can remove that lock, so clones are looked
for before.
"""

from moxwell.csi import active_tasks, steps
from moxwell.csi.disks import storage_type
from moxwell.csi.driver import Driver
from moxwell.csi.errors import AttachedElsewhere, FailedPrecondition, OperationPending
from moxwell.csi.helper_vms import HelperVM, description_field
from moxwell.csi.ids import VolumeId, base_name
from moxwell.errors import Missing, MoxwellError
from moxwell.pve.regions import Region

TEMPORARY_PREFIX = "clone-"
DELETION_LOCK = "snapshot-delete"


async def create(region: Region, vm: HelperVM, name: str, description: str) -> None:
    """Take a snapshot unless it exists."""
    rows = await region.reader.snapshots.list(vm.host, vm.vmid)
    if any(row.name == name for row in rows):
        return
    step = steps.CreateNativeSnapshot(vm=vm.ref(region), name=name, description=description)
    await steps.run(region, step)


async def delete(region: Region, vm: HelperVM, name: str) -> None:
    """Delete a snapshot if it exists."""
    rows = await region.reader.snapshots.list(vm.host, vm.vmid)
    if all(row.name != name for row in rows):
        return
    await _refuse_if_stuck(region, vm)
    await _refuse_with_clones(region, vm, name)
    upid = await region.perform(
        steps.DeleteNativeSnapshot(vm=vm.ref(region), name=name), steps.OWNER
    )
    error: MoxwellError | None = None
    if upid is not None:
        error = (await region.tasks.wait_ended(upid)).error
    if error is None or isinstance(error, Missing):
        return
    raise error


async def _refuse_if_stuck(region: Region, vm: HelperVM) -> None:
    """Raise if an earlier deletion failed in Proxmox; the lock that it left is removed by root."""
    if (await region.reader.qemu.config(vm.host, vm.vmid)).lock != DELETION_LOCK:
        return
    if await active_tasks.running(region, vm.host, vmid=vm.vmid):
        raise OperationPending(f"a snapshot of guest {vm.vmid} is being deleted")
    raise FailedPrecondition(
        f"Proxmox could not delete a snapshot of guest {vm.vmid} and left it locked: see its last "
        f"task, remove the cause and run `qm unlock {vm.vmid}` on {vm.host}; then it is repeated"
    )


async def _refuse_with_clones(region: Region, vm: HelperVM, name: str) -> None:
    """Raise if disks depend on a snapshot; Ceph's list of disks names what each depends on."""
    volume = vm.volume_id(region)
    if storage_type(region, volume) != "rbd":
        return
    rows = await region.reader.storage.content(vm.host, volume.storage, content="images")
    parent = f"{base_name(volume.disk)}@{name}"
    if clones := [row.volid for row in rows if row.parent == parent]:
        raise FailedPrecondition(
            f"the snapshot has linked clones, which must be deleted first: {', '.join(clones)}"
        )


async def clean_up(driver: Driver, region: Region, volume: VolumeId, vm: HelperVM) -> None:
    """Destroy a helper VM without snapshots if only they needed it, and a deleted volume's disk."""
    if driver.helper_vms.is_in_use(volume):
        return
    if await region.reader.snapshots.list(vm.host, vm.vmid):
        return
    if vm.is_reference:
        if vm.is_volume_deleted:
            await refuse_while_cloned(region, vm)
            await _delete_disk(driver, region, volume)
        await driver.helper_vms.destroy(region, vm)
    elif vm.is_volume_deleted:
        await driver.helper_vms.destroy(region, vm)


async def _delete_disk(driver: Driver, region: Region, volume: VolumeId) -> None:
    await driver.attachments.sync(region)
    attachment = driver.attachments.find(volume)
    if attachment is not None:
        raise AttachedElsewhere(f"{volume} is deleted but attached to guest {attachment.vmid}")
    await driver.disks.delete(region, volume)


async def delete_volume(driver: Driver, region: Region, volume: VolumeId) -> bool:
    """
    Delete a volume that has a helper VM; returns False if it has none.

    A volume with snapshots is only marked as deleted; its disk is deleted with the last snapshot.
    """
    async with driver.helper_vms.lock(volume):
        vm = await driver.helper_vms.find_for(region, volume)
        if vm is None:
            return False
        if driver.helper_vms.is_in_use(volume):
            raise OperationPending(f"{volume} is being cloned")
        await refuse_while_cloned(region, vm)
        await delete_temporary(region, vm)
        if await region.reader.snapshots.list(vm.host, vm.vmid):
            if not vm.is_volume_deleted:
                await driver.helper_vms.mark_deleted(region, vm)
            return True
        if vm.is_reference:
            await _delete_disk(driver, region, volume)
        await driver.helper_vms.destroy(region, vm)
        return True


async def delete_temporary(region: Region, vm: HelperVM, *, before: int | None = None) -> None:
    """Delete temporary snapshots that an interrupted clone left, optionally only old ones."""
    names = [
        row.name
        for row in await region.reader.snapshots.list(vm.host, vm.vmid)
        if row.name.startswith(TEMPORARY_PREFIX)
        and not description_field(row.description, "source")
        and (before is None or row.snaptime < before)
    ]
    for name in names:
        await delete(region, vm, name)


async def refuse_while_cloned(region: Region, vm: HelperVM) -> None:
    """Raise while a clone task, also of an earlier driver process, reads the disk."""
    for row in await active_tasks.running(region, vm.host, vmid=vm.vmid):
        if row.type == "qmclone":
            raise OperationPending(f"guest {vm.vmid} is being cloned")
