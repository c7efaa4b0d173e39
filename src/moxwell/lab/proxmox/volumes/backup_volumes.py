"""Which volumes of a guest a backup contains, with PVE's reasons."""

from collections.abc import Iterator

from moxwell.lab.proxmox.config_schema import ct
from moxwell.lab.proxmox.config_schema.drives import find_drive, is_drive
from moxwell.lab.proxmox.state import Row, SimGuest


def backup_volumes(guest: SimGuest) -> Iterator[tuple[str, Row]]:
    """(option, name and whether it is included) of every disk or mount point."""
    yield from _drives(guest) if guest.kind == "qemu" else _mounts(guest)


def _drives(guest: SimGuest) -> Iterator[tuple[str, Row]]:
    for slot in sorted(name for name in guest.conf if is_drive(name)):
        drive = find_drive(slot, guest.conf[slot])
        if drive is None or drive.is_cdrom_media:
            continue
        choice = drive.options.get("backup")
        reason = {"1": "enabled", "0": "disabled"}.get(choice or "", "default yes")
        kept = choice != "0"
        if slot == "efidisk0" and guest.conf.get("bios") != "ovmf":
            reason, kept = "efidisk but no OMVF BIOS", False
        yield slot, {"name": drive.file, "included": kept, "reason": reason}


def _mounts(guest: SimGuest) -> Iterator[tuple[str, Row]]:
    for key in sorted(name for name in guest.conf if name in ct.DISKS):
        values = ct.read(ct.mount_form(key), guest.conf[key])
        choice = values.get("backup", "0")
        if key == "rootfs":
            kept, reason = True, "rootfs"
        elif ":" not in values.get("volume", ""):
            kept, reason = False, "not a volume"
        else:
            kept, reason = choice == "1", "enabled" if choice == "1" else "disabled"
        yield key, {"name": values.get("volume", ""), "included": kept, "reason": reason}
