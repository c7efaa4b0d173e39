"""
Restores a VM from a backup archive (POST qemu with ``archive``).

A backup of the simulator contains the configuration; disks are restored with their sizes and
content ids.
"""

from moxwell.lab.proxmox.config_schema.drives import Drive, find_drive, is_drive, write_drive
from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import identity, start
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

_FORMATS = ("raw", "qcow2", "vmdk")


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
    old = call.region.guests.get(vmid)
    if old is not None:
        files.check_protection(old, f"unable to restore VM {vmid}")
        if old.running:
            raise die(f"unable to restore VM {vmid} - vm is running")
    guest = old or SimGuest(vmid, "qemu", call.node)
    guest.conf["lock"] = "create"
    call.region.guests[vmid] = guest
    call.runtime.mark_changed(vmid)

    async def worker(ctx: WorkerContext) -> None:
        async with call.hold("qemu", vmid, 1):
            try:
                await _restore(call, guest, archive, settings, ctx)
            except PveException:
                guest.conf.pop("lock", None)
                raise
        if call.get("start"):
            ctx.log("Execute autostart")
            await start.autostart(call, guest, ctx)

    return call.spawn("qmrestore", vmid, worker)


async def _restore(
    call: PveCall, guest: SimGuest, archive: str, settings: dict[str, Value], ctx: WorkerContext
) -> None:
    store = files.volume_store(call)
    saved, path = read_archive(store.get(archive)), store.path(archive)
    if saved.kind != "qemu":
        raise die(f"ERROR: file '{path}' does not look like a QemuServer vzdump backup")
    _check_storages(call, saved, path)
    for drive in list(files.drives(guest.conf)):
        if drive.storage and files.is_owner(store, guest.vmid, drive.file):
            store.free(drive.file, ctx)
    conf = _without_excluded(saved.conf)
    for drive in saved_drives(saved.conf):
        conf[drive.slot] = await _disk(call, guest, drive, saved, ctx)
    conf.pop("lock", None)
    if call.get("unique"):
        for name in [n for n in conf if n.startswith("net") and n[3:].isdigit()]:
            conf[name] = identity.with_mac(call, str(conf[name]), fresh=True)
        conf["smbios1"] = f"uuid={identity.new_uuid(call.runtime)}"
    conf["vmgenid"] = identity.new_uuid(call.runtime)
    guest.conf = conf | settings
    guest.snapshots.clear()
    files.write(call.runtime, guest)


def _check_storages(call: PveCall, saved: GuestArchive, path: str) -> None:
    """The storages of the disks are checked while the archive is extracted."""
    store = files.volume_store(call)
    for drive in saved_drives(saved.conf):
        name = call.get("storage") or drive.storage or "local"
        try:
            storage = store.get_enabled(name)
            if "images" not in storage.content:
                raise die(f"storage '{name}' does not support vm images")
        except PveException as problem:
            command = extract_command(path, call.runtime.random.randrange(1000, 65536))
            raise die(f"command '{command}' failed: {problem.message}") from problem


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
    volid = store.alloc(storage, guest.vmid, form, drive.size)
    ctx.log(f"new volume ID is '{volid}'")
    await ctx.sleep(drive.size / call.region.pace.bandwidth)
    volume = store.get(volid)
    volume.content_id = saved.content_ids.get(drive.slot, volume.content_id)
    return write_drive(drive.with_file(volid, volume.size))
