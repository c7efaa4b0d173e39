"""
DELETE qemu/ID: destroys a VM, its volumes and references to it.

Volumes of other VMIDs are kept, as are unreferenced volumes unless requested.
"""

from moxwell.lab.proxmox.errors import PveException, bad_params, die
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import SimGuest
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore


def _check(call: PveCall, vmid: int) -> SimGuest:
    guest = call.get_guest(vmid)
    files.check_protection(guest, f"can't remove VM {vmid}")
    if not call.get("purge"):
        if ha_manager.find_resource(call.region, guest) is not None:
            raise die(
                f"unable to remove VM {vmid} - used in HA resources and purge parameter not set."
            )
        check_replication(call, vmid)
    if guest.running:
        raise die(f"VM {vmid} is running - destroy failed")
    return guest


def check_replication(call: PveCall, vmid: int) -> None:
    for ident, job in call.region.replication.items():
        if str(job.get("guest")) == str(vmid):
            found = f"There is a replication job '{ident}' for guest '{vmid}'"
            raise die(f"{found} - Please remove that first.")


def destroy(call: PveCall) -> str:
    """Check before the task and again in the worker."""
    vmid = call.params["vmid"]
    if call.get("skiplock") and not call.is_root:
        raise bad_params(skiplock="Only root may use this option.")
    _check(call, vmid)

    async def worker(ctx: WorkerContext) -> None:
        async with call.hold("qemu", vmid):
            guest = _check(call, vmid)
            _remove(call, guest, ctx)

    return call.spawn("qmdestroy", vmid, worker)


def _remove(call: PveCall, guest: SimGuest, ctx: WorkerContext) -> None:
    if not call.get("skiplock") and guest.lock != "suspended":
        files.check_lock(guest)
    store = files.volume_store(call)
    if guest.template:
        _check_bases(store, guest)
    _free_own(store, guest, ctx)
    if call.get("destroy-unreferenced-disks"):
        free_unreferenced(call, guest.vmid, ctx)
    delete_references(call, guest)
    if call.get("purge"):
        ctx.log(f"purging VM {guest.vmid} from related configurations..")
        purge(call, guest, ctx)
    delete_guest(call, guest)


def _check_bases(store: VolumeStore, guest: SimGuest) -> None:
    for drive in [*files.drives(guest.conf), *files.unused(guest.conf)]:
        if drive.storage and not drive.is_cdrom_media and store.base_in_use(drive.file):
            raise die(f"base volume '{drive.file}' is still in use by linked cloned")


def _free_own(store: VolumeStore, guest: SimGuest, ctx: WorkerContext) -> None:
    volids = [
        drive.file
        for conf in (guest.conf, guest.pending)
        for drive in [*files.drives(conf), *files.unused(conf)]
        if drive.storage and not drive.is_cdrom
    ]
    volids += [snap.vmstate for snap in guest.snapshots.values() if snap.vmstate]
    volids += [str(guest.conf["vmstate"])] if guest.conf.get("vmstate") else []
    for volid in dict.fromkeys(volids):
        try:
            if store.owner(volid) == guest.vmid:
                store.free(volid, ctx)
        except PveException as problem:
            ctx.log(f"Could not remove disk '{volid}', check manually: {problem.message}")


def free_unreferenced(call: PveCall, vmid: int, ctx: WorkerContext) -> None:
    """Delete volumes of this VMID that no configuration references, on all storages of the node."""
    store = files.volume_store(call)
    for storage in call.region.storages.values():
        if storage.options.get("disable") or not storage.is_available_on(call.node):
            continue
        owned = [v.name for v in storage.volumes_on(call.node).values() if v.vmid == vmid]
        for name in owned:
            if storage.volumes_on(call.node)[name].content in ("images", "rootdir"):
                try:
                    store.free(f"{storage.name}:{name}", ctx)
                except PveException as problem:
                    ctx.log(problem.message)


def delete_references(call: PveCall, guest: SimGuest) -> None:
    """Delete the ACL entries and pool memberships of the guest."""
    access = call.region.access
    access.acl = [acl for acl in access.acl if acl.path != f"/vms/{guest.vmid}"]
    for pool in call.region.pools.values():
        if guest.vmid in pool.vms:
            pool.vms.remove(guest.vmid)


def purge(call: PveCall, guest: SimGuest, ctx: WorkerContext) -> None:
    """Delete the guest's replication jobs, backup job entries and HA resource."""
    region = call.region
    for ident, job in list(region.replication.items()):
        if str(job.get("guest")) == str(guest.vmid):
            del region.replication[ident]
    for job in region.backup_jobs.values():
        listed = str(job.get("vmid", "")).split(",")
        if str(guest.vmid) in listed:
            job["vmid"] = ",".join(v for v in listed if v != str(guest.vmid))
    if ha_manager.find_resource(region, guest) is not None:
        ha_manager.delete_resource(call.runtime, ha_manager.sid_of(guest))
        label = "VM" if guest.kind == "qemu" else "CT"
        ctx.log(f"NOTE: removed {label} {guest.vmid} from HA resource configuration.")


def delete_guest(call: PveCall, guest: SimGuest) -> None:
    if call.region.guests.get(guest.vmid) is guest:
        del call.region.guests[guest.vmid]
    call.runtime.mark_changed(guest.vmid)
