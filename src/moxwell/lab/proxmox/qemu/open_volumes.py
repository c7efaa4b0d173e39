"""
Who has which image open: a running QEMU holds a write lock on every image file it uses.

Only file storages lock; on the others two machines may well open one volume. An index from volume
to candidates keeps this quick with many guests; it may name too many, so each is looked at.
"""

from collections.abc import Iterator

from moxwell.lab.proxmox.config_schema.drives import Drive
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.request_context import Call, Desk
from moxwell.lab.proxmox.state import Guest
from moxwell.lab.proxmox.volumes import names

Index = dict[str, set[int]]


def _index(desk: Desk) -> Index:
    index: Index | None = desk.extras.get("open")
    if index is None:
        index = desk.extras["open"] = {}
        for guest in desk.region.guests.values():
            if guest.running and guest.kind == "qemu":
                note(desk, guest)
    return index


def note(desk: Desk, guest: Guest) -> None:
    """A VM started, or got a drive."""
    index = _index(desk)
    for drive in files.drives(guest.conf):
        if not drive.is_cdrom_media:
            index.setdefault(drive.file, set()).add(guest.vmid)


def forget(desk: Desk, guest: Guest) -> None:
    """A VM ended."""
    index = _index(desk)
    for drive in files.drives(guest.conf):
        holders = index.get(drive.file)
        if holders is not None:
            holders.discard(guest.vmid)
            if not holders:
                del index[drive.file]


def _opened(guest: Guest) -> Iterator[Drive]:
    for drive in files.drives(guest.conf):
        if not drive.is_cdrom_media and not guest.special.get(f"ghost:{drive.slot}"):
            yield drive


def _clash(one: Drive, other: Drive) -> bool:
    return one.file == other.file and not (
        one.options.get("ro") == "1" and other.options.get("ro") == "1"
    )


def _locks(desk: Desk, drive: Drive) -> bool:
    storage = desk.region.storages.get(drive.storage or "")
    return storage is not None and names.has_path(storage) and not drive.is_cdrom_media


def is_taken(call: Call, guest: Guest, drive: Drive) -> bool:
    """Has another process (or another drive of the same VM) the image open for writing?"""
    if not _locks(call.desk, drive):
        return False
    shared = call.region.storages[drive.storage or ""].shared
    for vmid in _index(call.desk).get(drive.file, ()):
        other = call.region.guests.get(vmid)
        if other is None or not other.running or not (shared or other.node == guest.node):
            continue
        mine = other.vmid == guest.vmid
        if any(_clash(drive, d) for d in _opened(other) if not (mine and d.slot == drive.slot)):
            return True
    return False


def first_taken(call: Call, guest: Guest) -> Drive | None:
    """The first drive of a VM about to start that it cannot open."""
    seen: list[Drive] = []
    for drive in files.drives(guest.conf):
        if not _locks(call.desk, drive):
            continue
        if any(_clash(drive, one) for one in seen) or is_taken(call, guest, drive):
            return drive
        seen.append(drive)
    return None
