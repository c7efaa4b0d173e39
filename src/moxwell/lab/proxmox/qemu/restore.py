"""
Restoring a VM from a backup archive (POST qemu with ``archive``).

A backup made by the simulator carries the configuration it was taken from; disks come back with
their sizes and marks.
"""

import json

from moxwell.lab.proxmox.config_schema.drives import Drive, find_drive, is_drive, write_drive
from moxwell.lab.proxmox.errors import PveError, die
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import identity, start
from moxwell.lab.proxmox.request_context import Call
from moxwell.lab.proxmox.state import Conf, Guest, Row, Value
from moxwell.lab.proxmox.tasks import Work
from moxwell.lab.proxmox.volumes import access, names

_FORMATS = ("raw", "qcow2", "vmdk")


def check(call: Call, vmid: int, archive: str) -> None:
    """May the caller use this archive, and is it one?"""
    place = files.stock(call)
    access.check_volume(call, place, archive, vmid=vmid, kind="backup")
    if place.find(archive) is None:
        raise die(f"volume '{archive}' does not exist")


def spawn(call: Call, vmid: int, archive: str, settings: dict[str, Value]) -> str:
    old = call.region.guests.get(vmid)
    if old is not None:
        files.check_protection(old, f"unable to restore VM {vmid}")
        if old.running:
            raise die(f"unable to restore VM {vmid} - vm is running")
    guest = old or Guest(vmid, "qemu", call.node)
    guest.conf["lock"] = "create"
    call.region.guests[vmid] = guest
    call.desk.touch(vmid)

    async def worker(work: Work) -> None:
        async with call.hold("qemu", vmid, 1):
            try:
                await _restore(call, guest, archive, settings, work)
            except PveError:
                guest.conf.pop("lock", None)
                raise
        if call.get("start"):
            work.log("Execute autostart")
            await start.autostart(call, guest, work)

    return call.spawn("qmrestore", vmid, worker)


async def _restore(
    call: Call, guest: Guest, archive: str, settings: dict[str, Value], work: Work
) -> None:
    place = files.stock(call)
    volume = place.get(archive)
    saved = json.loads(volume.data or b"{}")
    if saved.get("kind") != "qemu":
        raise die(f"unable to restore VM {guest.vmid} - no config in archive")
    conf: Conf = dict(saved["conf"])
    for drive in list(files.drives(guest.conf)):
        if drive.storage and files.is_owner(place, guest.vmid, drive.file):
            place.free(drive.file, work)
    for slot in [s for s in conf if is_drive(s)]:
        parsed = find_drive(slot, conf[slot])
        if parsed is not None and parsed.storage and not parsed.is_cdrom_media:
            conf[slot] = await _disk(call, guest, parsed, saved, work)
    conf.pop("lock", None)
    if call.get("unique"):
        for name in [n for n in conf if n.startswith("net") and n[3:].isdigit()]:
            conf[name] = identity.with_mac(call, str(conf[name]), fresh=True)
        conf["smbios1"] = f"uuid={identity.new_uuid(call.desk)}"
    conf["vmgenid"] = identity.new_uuid(call.desk)
    guest.conf = conf | settings
    guest.snapshots.clear()
    files.write(call.desk, guest)


async def _disk(call: Call, guest: Guest, drive: Drive, saved: Row, work: Work) -> str:
    place = files.stock(call)
    storage = call.get("storage") or drive.storage or "local"
    old = drive.file.rpartition(".")[2]
    form = old if names.has_path(place.get_storage(storage)) and old in _FORMATS else None
    volid = place.alloc(storage, guest.vmid, form, drive.size)
    work.log(f"new volume ID is '{volid}'")
    await work.sleep(drive.size / call.region.pace.bandwidth)
    place.get(volid).mark = saved.get("marks", {}).get(drive.slot, place.get(volid).mark)
    return write_drive(drive.with_file(volid, place.get(volid).size))
