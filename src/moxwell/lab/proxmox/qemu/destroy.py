"""
DELETE qemu/ID: the VM, its own disks, and what the cluster knows about it.

Volumes that carry another guest's id stay, and so do unreferenced ones unless asked for.
"""

from moxwell.lab.proxmox.errors import PveError, bad_params, die
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.request_context import Call
from moxwell.lab.proxmox.state import Guest
from moxwell.lab.proxmox.tasks import Work
from moxwell.lab.proxmox.volumes.volume_store import Stock


def _early(call: Call, vmid: int) -> Guest:
    guest = call.get_guest(vmid)
    files.check_protection(guest, f"can't remove VM {vmid}")
    if not call.get("purge"):
        if ha_manager.listed(call.region, guest) is not None:
            raise die(
                f"unable to remove VM {vmid} - used in HA resources and purge parameter not set."
            )
        check_replication(call, vmid)
    if guest.running:
        raise die(f"VM {vmid} is running - destroy failed")
    return guest


def check_replication(call: Call, vmid: int) -> None:
    jobs = [j for j in call.region.replication.values() if str(j.get("guest")) == str(vmid)]
    if jobs:
        raise die(f"There is a replication job '{jobs[0]['id']}' for guest '{vmid}'")


def destroy(call: Call) -> str:
    """Check at once, then again in the worker."""
    vmid = call.params["vmid"]
    if call.get("skiplock") and not call.is_root:
        raise bad_params(skiplock="Only root may use this option.")
    _early(call, vmid)

    async def worker(work: Work) -> None:
        async with call.hold("qemu", vmid):
            guest = _early(call, vmid)
            _remove(call, guest, work)

    return call.spawn("qmdestroy", vmid, worker)


def _remove(call: Call, guest: Guest, work: Work) -> None:
    if not call.get("skiplock") and guest.lock != "suspended":
        files.check_lock(guest)
    place = files.stock(call)
    if guest.template:
        _check_bases(place, guest)
    _free_own(place, guest, work)
    if call.get("destroy-unreferenced-disks"):
        free_unreferenced(call, guest.vmid, work)
    forget(call, guest)
    if call.get("purge"):
        work.log(f"purging VM {guest.vmid} from related configurations..")
        purge(call, guest, work)
    drop(call, guest)


def _check_bases(place: Stock, guest: Guest) -> None:
    for drive in [*files.drives(guest.conf), *files.unused(guest.conf)]:
        if drive.storage and not drive.is_cdrom_media and place.base_in_use(drive.file):
            raise die(f"base volume '{drive.file}' is still in use by linked cloned")


def _free_own(place: Stock, guest: Guest, work: Work) -> None:
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
            if place.owner(volid) == guest.vmid:
                place.free(volid, work)
        except PveError as problem:
            work.log(f"Could not remove disk '{volid}', check manually: {problem.message}")


def free_unreferenced(call: Call, vmid: int, work: Work) -> None:
    """Volumes of this id that no configuration names, on every storage of the node."""
    place = files.stock(call)
    for storage in call.region.storages.values():
        if storage.options.get("disable") or not storage.on(call.node):
            continue
        owned = [v.name for v in storage.shelf(call.node).values() if v.vmid == vmid]
        for name in owned:
            if storage.shelf(call.node)[name].content in ("images", "rootdir"):
                try:
                    place.free(f"{storage.name}:{name}", work)
                except PveError as problem:
                    work.log(problem.message)


def forget(call: Call, guest: Guest) -> None:
    """ACLs and pools no longer know the guest."""
    access = call.region.access
    access.acl = [acl for acl in access.acl if acl.path != f"/vms/{guest.vmid}"]
    for pool in call.region.pools.values():
        if guest.vmid in pool.vms:
            pool.vms.remove(guest.vmid)


def purge(call: Call, guest: Guest, work: Work) -> None:
    """Replication jobs, backup jobs and HA no longer know the guest."""
    region = call.region
    for ident, job in list(region.replication.items()):
        if str(job.get("guest")) == str(guest.vmid):
            del region.replication[ident]
    for job in region.backup_jobs.values():
        listed = str(job.get("vmid", "")).split(",")
        if str(guest.vmid) in listed:
            job["vmid"] = ",".join(v for v in listed if v != str(guest.vmid))
    if ha_manager.listed(region, guest) is not None:
        ha_manager.forget(call.desk, ha_manager.sid_of(guest))
        word = "VM" if guest.kind == "qemu" else "CT"
        work.log(f"NOTE: removed {word} {guest.vmid} from HA resource configuration.")


def drop(call: Call, guest: Guest) -> None:
    if call.region.guests.get(guest.vmid) is guest:
        del call.region.guests[guest.vmid]
    call.desk.touch(guest.vmid)
