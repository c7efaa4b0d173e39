"""
Restores a VM from a backup archive (POST qemu with ``archive``).

A backup of the simulator contains the configuration; disks are restored with their sizes and
content ids.
"""

from moxwell.lab.proxmox.config_schema import devices
from moxwell.lab.proxmox.config_schema.drives import Drive, find_drive, is_drive, write_drive
from moxwell.lab.proxmox.config_schema.property_strings import write as write_properties
from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import identity, privileges, start
from moxwell.lab.proxmox.qemu.template import make_bases
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf, SimGuest, Value
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes import access, names
from moxwell.lab.proxmox.volumes.archives import (
    GuestArchive,
    extract_command,
    read_archive,
    saved_drives,
)
from moxwell.lab.proxmox.volumes.volume_store import CLOUDINIT_SIZE

_FORMATS = ("raw", "qcow2", "vmdk")
_LIVE = "live-restore is only compatible with backup images from a Proxmox Backup Server"


def check(call: PveCall, vmid: int, archive: str) -> None:
    """Check that the volume is a backup and that the caller may use it."""
    if archive == "-":
        raise die("pipe requires cli environment")
    store = files.volume_store(call)
    access.check_volume(call, store, archive, vmid=vmid, kind="backup")
    if ":" not in archive:
        raise die(f"can't find file '{archive}'")
    if store.find(archive) is None:
        raise die(f"volume '{archive}' does not exist")


def spawn(call: PveCall, vmid: int, archive: str, settings: dict[str, Value]) -> str:
    """Lock the configuration and start the worker, which checks the guest to overwrite."""
    old = call.region.guests.get(vmid)
    if old is not None and old.lock:
        raise die(f"unable to restore VM {vmid} - VM is locked ({old.lock})")
    guest = old or SimGuest(vmid, "qemu", call.node)
    guest.conf["lock"] = "create"
    call.region.guests[vmid] = guest
    call.runtime.mark_changed(vmid)

    async def worker(ctx: WorkerContext) -> None:
        try:
            _check_target(guest)
            async with call.hold("qemu", vmid, 1):
                await _restore(call, guest, archive, settings, ctx)
        except PveException:
            guest.conf.pop("lock", None)
            raise
        await _after(call, guest, ctx)

    return call.spawn("qmrestore", vmid, worker)


def _check_target(guest: SimGuest) -> None:
    files.check_protection(guest, f"unable to restore VM {guest.vmid} -")
    if guest.running:
        raise die(f"unable to restore VM {guest.vmid} - vm is running")


async def _after(call: PveCall, guest: SimGuest, ctx: WorkerContext) -> None:
    """What follows a restore: a template, the start, the HA resource."""
    if guest.template:
        ctx.log("Convert to template.")
        await make_bases(call, guest, ctx)
    if call.get("start"):
        ctx.log("Execute autostart")
        await start.autostart(call, guest, ctx)
    ha_manager.manage_created(call, guest, ctx)


async def _restore(
    call: PveCall, guest: SimGuest, archive: str, settings: dict[str, Value], ctx: WorkerContext
) -> None:
    store = files.volume_store(call)
    saved, path = read_archive(store.get(archive)), store.path(archive)
    privileges.check_bridges(call, saved.conf | settings)
    privileges.check_mappings(call, saved.conf | settings)
    if call.get("live-restore"):
        raise die(_LIVE)
    if saved.kind != "qemu":
        raise die(f"ERROR: file '{path}' does not look like a QemuServer vzdump backup")
    _check_storages(call, saved, path)
    kept = _free_old(call, guest, saved, ctx)
    conf = _without_excluded(saved.conf)
    for drive in _restored_drives(saved.conf):
        conf[drive.slot] = await _disk(call, guest, drive, saved, ctx)
    guest.conf = _adapted(call, conf) | settings
    for volid in kept:
        files.add_unused(guest.conf, volid)
    guest.pending.clear()
    guest.deletes.clear()
    guest.special.clear()
    guest.parent = None
    files.write(call.runtime, guest)
    pool = call.region.pools.get(str(call.get("pool", "")))
    if pool is not None and guest.vmid not in pool.vms:
        pool.vms.append(guest.vmid)


def _restored_drives(conf: Conf) -> list[Drive]:
    """The disks in the archive and the cloud-init drive, which is allocated again."""
    cloudinit = files.find_cloudinit([conf])
    return [*saved_drives(conf), *([cloudinit] if cloudinit is not None else [])]


def _free_old(call: PveCall, guest: SimGuest, saved: GuestArchive, ctx: WorkerContext) -> list[str]:
    """Free the volumes that the archive replaces; returns those that become unused."""
    store, kept = files.volume_store(call), []
    replaced = {drive.slot for drive in _restored_drives(saved.conf)}
    for drive in [*files.drives(guest.conf), *files.unused(guest.conf)]:
        if not drive.storage or not files.is_owner(store, guest.vmid, drive.file):
            continue
        if drive.is_cdrom or store.find(drive.file) is None:
            continue
        if drive.slot in replaced:
            store.free(drive.file, ctx)
        else:
            kept.append(drive.file)
    for snap in guest.snapshots.values():
        if snap.vmstate and store.find(snap.vmstate) is not None:
            store.free(snap.vmstate, ctx)
    guest.snapshots.clear()
    for volid in kept:
        store.get(volid).snapshots.clear()
    return kept


def _adapted(call: PveCall, conf: Conf) -> Conf:
    """Drop what belongs to the old guest and generate what must differ."""
    dropped = ("lock", "parent")
    found = {k: v for k, v in conf.items() if k not in dropped and not k.startswith("unused")}
    if str(found.get("vmgenid", "0")) != "0":
        found["vmgenid"] = identity.new_uuid(call.runtime)
    if not call.get("unique"):
        return found
    for name in [n for n in found if n.startswith("net") and n[3:].isdigit()]:
        found[name] = identity.with_mac(call, str(found[name]), fresh=True)
    if found.get("smbios1"):
        smbios = devices.read(devices.SMBIOS, found["smbios1"])
        smbios["uuid"] = identity.new_uuid(call.runtime)
        found["smbios1"] = write_properties(devices.SMBIOS, smbios)
    return found


def _check_storages(call: PveCall, saved: GuestArchive, path: str) -> None:
    """The storages of the disks are checked while the archive is extracted."""
    store = files.volume_store(call)
    for drive in _restored_drives(saved.conf):
        name = call.get("storage") or drive.storage or "local"
        try:
            if "images" not in store.get_storage(name).content:
                raise die(f"Content type 'images' is not available on storage '{name}'")
            if not call.is_root:
                call.check(f"/storage/{name}", "Datastore.AllocateSpace")
            store.get_enabled(name)
        except PveException as problem:
            command = extract_command(path, call.runtime.random.randrange(1000, 65536))
            raise die(f"command '{command}' failed: {problem.in_task}") from problem


def _without_excluded(saved: Conf) -> Conf:
    """Disks that the backup does not contain become lines of the description."""
    kept = {drive.slot for drive in saved_drives(saved)}
    conf: Conf = {}
    lines = [str(saved["description"])] if saved.get("description") else []
    for name in sorted(saved):
        drive = find_drive(name, saved[name]) if is_drive(name) else None
        if drive is not None and drive.storage and not drive.is_cdrom_media and name not in kept:
            lines.append(f"{name}: {saved[name]}")
        else:
            conf[name] = saved[name]
    return conf | ({"description": "\n".join(lines)} if lines else {})


async def _disk(
    call: PveCall, guest: SimGuest, drive: Drive, saved: GuestArchive, ctx: WorkerContext
) -> str:
    store = files.volume_store(call)
    storage = call.get("storage") or drive.storage or "local"
    old = drive.file.rpartition(".")[2]
    form = old if names.has_path(store.get_storage(storage)) and old in _FORMATS else None
    if drive.is_cloudinit:
        return _cloudinit(call, guest, drive, storage, form)
    volid = store.alloc(storage, guest.vmid, form, drive.size)
    ctx.log(f"new volume ID is '{volid}'")
    await ctx.sleep(drive.size / call.region.pace.bandwidth)
    volume = store.get(volid)
    volume.content_id = saved.content_ids.get(drive.slot, volume.content_id)
    return write_drive(drive.with_file(volid, volume.size))


def _cloudinit(call: PveCall, guest: SimGuest, drive: Drive, storage: str, form: str | None) -> str:
    store, file = files.volume_store(call), f"vm-{guest.vmid}-cloudinit"
    if names.has_path(store.get_storage(storage)):
        file += f".{form or 'raw'}"
    volid = store.alloc(storage, guest.vmid, form or "raw", CLOUDINIT_SIZE, file)
    return write_drive(drive.with_file(volid))
