"""
Restores a VM from a backup archive (POST qemu with ``archive``).

A backup of the simulator contains the configuration; disks are restored with their sizes and
content ids.
"""

import json

from moxwell.lab.proxmox.config_schema.drives import Drive, find_drive, is_drive, write_drive
from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import identity, start
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf, Row, SimGuest, Value
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes import access, names

_FORMATS = ("raw", "qcow2", "vmdk")


def check(call: PveCall, vmid: int, archive: str) -> None:
    """Check that the volume is a backup and that the caller may use it."""
    store = files.volume_store(call)
    access.check_volume(call, store, archive, vmid=vmid, kind="backup")
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
    volume = store.get(archive)
    saved = json.loads(volume.data or b"{}")
    if saved.get("kind") != "qemu":
        raise die(f"unable to restore VM {guest.vmid} - no config in archive")
    conf: Conf = dict(saved["conf"])
    for drive in list(files.drives(guest.conf)):
        if drive.storage and files.is_owner(store, guest.vmid, drive.file):
            store.free(drive.file, ctx)
    for slot in [s for s in conf if is_drive(s)]:
        parsed = find_drive(slot, conf[slot])
        if parsed is not None and parsed.storage and not parsed.is_cdrom_media:
            conf[slot] = await _disk(call, guest, parsed, saved, ctx)
    conf.pop("lock", None)
    if call.get("unique"):
        for name in [n for n in conf if n.startswith("net") and n[3:].isdigit()]:
            conf[name] = identity.with_mac(call, str(conf[name]), fresh=True)
        conf["smbios1"] = f"uuid={identity.new_uuid(call.runtime)}"
    conf["vmgenid"] = identity.new_uuid(call.runtime)
    guest.conf = conf | settings
    guest.snapshots.clear()
    files.write(call.runtime, guest)


async def _disk(
    call: PveCall, guest: SimGuest, drive: Drive, saved: Row, ctx: WorkerContext
) -> str:
    store = files.volume_store(call)
    storage = call.get("storage") or drive.storage or "local"
    old = drive.file.rpartition(".")[2]
    form = old if names.has_path(store.get_storage(storage)) and old in _FORMATS else None
    volid = store.alloc(storage, guest.vmid, form, drive.size)
    ctx.log(f"new volume ID is '{volid}'")
    await ctx.sleep(drive.size / call.region.pace.bandwidth)
    volume = store.get(volid)
    content_ids = saved.get("content_ids") or saved.get("marks") or {}  # "marks": old archives
    volume.content_id = content_ids.get(drive.slot, volume.content_id)
    return write_drive(drive.with_file(volid, volume.size))
