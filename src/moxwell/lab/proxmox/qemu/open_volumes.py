"""
Tracks which images running VMs have open: QEMU locks every image file for writing.

Only file storages lock images. An index from volume to candidate guests keeps lookups fast; it may
contain outdated candidates, so each is checked.
"""

from collections.abc import Iterator

from moxwell.lab.proxmox.config_schema.drives import Drive
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.request_context import PveCall, RegionRuntime
from moxwell.lab.proxmox.state import SimGuest
from moxwell.lab.proxmox.volumes import names

Index = dict[str, set[int]]


def _index(runtime: RegionRuntime) -> Index:
    index: Index | None = runtime.module_data.get("open_volumes")
    if index is None:
        index = runtime.module_data["open_volumes"] = {}
        for guest in runtime.region.guests.values():
            if guest.running and guest.kind == "qemu":
                add(runtime, guest)
    return index


def add(runtime: RegionRuntime, guest: SimGuest) -> None:
    """Index a VM that started or got a drive."""
    index = _index(runtime)
    for drive in files.drives(guest.conf):
        if not drive.is_cdrom_media:
            index.setdefault(drive.file, set()).add(guest.vmid)


def remove(runtime: RegionRuntime, guest: SimGuest) -> None:
    """Remove a stopped VM from the index."""
    index = _index(runtime)
    for drive in files.drives(guest.conf):
        holders = index.get(drive.file)
        if holders is not None:
            holders.discard(guest.vmid)
            if not holders:
                del index[drive.file]


def _opened(guest: SimGuest) -> Iterator[Drive]:
    for drive in files.drives(guest.conf):
        if not drive.is_cdrom_media and not guest.special.get(f"unattached:{drive.slot}"):
            yield drive


def _conflicts(one: Drive, other: Drive) -> bool:
    return one.file == other.file and not (
        one.options.get("ro") == "1" and other.options.get("ro") == "1"
    )


def _locks(runtime: RegionRuntime, drive: Drive) -> bool:
    storage = runtime.region.storages.get(drive.storage or "")
    return storage is not None and names.has_path(storage) and not drive.is_cdrom_media


def is_locked(call: PveCall, guest: SimGuest, drive: Drive) -> bool:
    """Whether another process, or another drive of the same VM, has the image open for writing."""
    if not _locks(call.runtime, drive):
        return False
    shared = call.region.storages[drive.storage or ""].shared
    for vmid in _index(call.runtime).get(drive.file, ()):
        other = call.region.guests.get(vmid)
        if other is None or not other.running or not (shared or other.node == guest.node):
            continue
        mine = other.vmid == guest.vmid
        if any(_conflicts(drive, d) for d in _opened(other) if not (mine and d.slot == drive.slot)):
            return True
    return False


def first_locked(call: PveCall, guest: SimGuest) -> Drive | None:
    """The first drive of a VM that cannot be opened."""
    seen: list[Drive] = []
    for drive in files.drives(guest.conf):
        if not _locks(call.runtime, drive):
            continue
        if any(_conflicts(drive, one) for one in seen) or is_locked(call, guest, drive):
            return drive
        seen.append(drive)
    return None
