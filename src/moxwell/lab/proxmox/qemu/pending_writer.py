"""
Writes a change of a configuration to its pending section.

Privileges that depend on a value are checked here, with the lock held. New volumes are allocated at
once, so that a pending drive has its volume.
"""

import re
from dataclasses import dataclass

from moxwell.lab.proxmox.config_schema import devices, formats, vm
from moxwell.lab.proxmox.config_schema.drives import (
    Drive,
    find_drive,
    has_compatible_options,
    is_drive,
    parse_drive,
)
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import disks, hotplug, identity, machine, privileges, tags
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import SimGuest, Value
from moxwell.lab.proxmox.tasks import WorkerContext


@dataclass(frozen=True, slots=True)
class PendingChange:
    """The options of one request: those to set and those to delete."""

    settings: dict[str, Value]
    delete: list[str]
    force: bool = False


def _readable(name: str, text: Value) -> bool:
    """Whether PVE can read a drive that it wrote; it drops a virtio drive without a medium."""
    drive = find_drive(name, text)
    return drive is None or has_compatible_options(drive)


class PendingWriter:
    """Writes one update to the pending section of a configuration."""

    def __init__(
        self, call: PveCall, guest: SimGuest, ctx: WorkerContext | None, change: PendingChange
    ) -> None:
        self._call, self._guest, self._work, self._change = call, guest, ctx, change
        self._order = files.boot_order(guest.conf)
        self.modified: set[str] = set()

    def delete(self, name: str) -> None:
        guest = self._guest
        value = guest.conf.get(name, guest.pending.get(name))
        if value is None:
            if self._work is not None:
                self._work.log(f"cannot delete '{name}' - not set in current configuration!")
            return
        self.modified.add(name)
        was_pending = guest.pending.pop(name, None)
        if name in self._order:
            self._order.remove(name)
            self._pending_boot()
        if name.startswith("unused"):
            self._delete_unused(name, str(value))
        elif name == "vmstate":
            self._delete_state(str(value))
        elif is_drive(name):
            self._delete_drive(name, str(value), was_pending)
        elif name == "tags":
            tags.check(self._call, guest.vmid, str(value), "")
            guest.conf.pop(name, None)
        else:
            self._delete_plain(name, value)

    def _pending_boot(self) -> None:
        self._guest.pending["boot"] = files.boot_text(self._order)
        self.modified.add("boot")

    def _delete_unused(self, name: str, volid: str) -> None:
        files.check_protection(self._guest, f"can't remove unused disk '{volid}'")
        self._call.check_vm(self._guest.vmid, "VM.Config.Disk")
        hotplug.deallocate(self._call, self._guest, name, volid)
        self._guest.conf.pop(name, None)

    def _delete_state(self, volid: str) -> None:
        """Delete the saved memory of a suspended guest."""
        files.check_protection(self._guest, f"can't remove vmstate '{volid}'")
        hotplug.deallocate(self._call, self._guest, "vmstate", volid)
        self._guest.conf.pop("vmstate", None)

    def _delete_drive(self, name: str, text: str, was_pending: Value | None) -> None:
        files.check_protection(self._guest, f"can't remove drive '{name}'")
        drive = find_drive(name, text)
        if drive is not None:
            privileges.check_drive(self._call, self._guest.vmid, drive)
        if was_pending is not None:
            self._forget(name, was_pending)
        self._guest.deletes[name] = int(self._change.force)

    def _forget(self, name: str, text: Value) -> None:
        drive = find_drive(name, text)
        if drive is not None:
            files.register_unused(files.volume_store(self._call), self._guest, drive)

    def _delete_plain(self, name: str, value: Value) -> None:
        vmid = self._guest.vmid
        privileges.check_hardware(self._call, vmid, name, value, verb="delete")
        if re.fullmatch(r"net\d+", name) and name in self._guest.conf:
            privileges.check_bridges(self._call, {name: self._guest.conf[name]})
        self._guest.deletes[name] = int(self._change.force)

    async def set(self, name: str, value: Value) -> None:
        guest = self._guest
        self.modified.add(name)
        if name in guest.pending and guest.pending[name] == value:
            return
        if is_drive(name):
            await self._set_drive(name, str(value))
        elif name == "boot":
            self._set_boot(str(value))
        elif name == "tags":
            self._set_tags(str(value))
        elif name == "ostype":
            self._set_ostype(str(value))
        else:
            self._set_plain(name, value)
        guest.deletes.pop(name, None)

    async def _set_drive(self, name: str, text: str) -> None:
        guest, call = self._guest, self._call
        old = find_drive(name, guest.conf[name]) if name in guest.conf else None
        new = parse_drive(name, text, major=9)
        for drive in (old, new):
            if drive is not None:
                privileges.check_drive(call, guest.vmid, drive)
        _check_tpm(old, new)
        if name in guest.pending:
            self._forget(name, guest.pending[name])
        target = disks.VolumeTarget(guest.vmid, (guest.conf, guest.pending), guest.template)
        made = await disks.DriveBuilder(call, self._work, target).create({name: text})
        if not _readable(name, made[name]):
            return
        guest.pending[name] = made[name]
        if self._order and new.is_cdrom and name not in self._order:
            self._order.append(name)
            self._pending_boot()

    def _set_boot(self, text: str) -> None:
        guest = self._guest
        guest.pending["boot"] = text or " "
        order = formats.split_list(devices.read(devices.BOOT, text).get("order", ""))
        for device in order:
            known = device in guest.conf or device in guest.pending
            known = known or device in self._change.settings
            if not known or device in self._change.delete:
                guest.pending.pop("boot", None)
                raise die(f"invalid bootorder: device '{device}' does not exist'")
        if order:
            guest.pending["boot"] = files.boot_text(order)
            if "bootdisk" in guest.conf:
                guest.deletes["bootdisk"] = 0

    def _set_tags(self, text: str) -> None:
        guest = self._guest
        tags.check(self._call, guest.vmid, str(guest.conf.get("tags", "")), text)
        guest.pending["tags"] = identity.normalize_tags(self._call, text) or " "

    def _set_ostype(self, text: str) -> None:
        """Pin the machine version of a guest that becomes a Windows guest."""
        guest = self._guest
        if "machine" not in {*self._change.settings, *guest.pending, *self.modified}:
            kept = machine.pinned(guest.conf.get("machine"), text, self._call.major)
            if kept is not None:
                guest.pending["machine"] = kept
        guest.pending["ostype"] = text

    def _set_plain(self, name: str, value: Value) -> None:
        guest, vmid = self._guest, self._guest.vmid
        if name == "vga":
            machine.check_clipboard(str(value))
        elif name == "machine":
            machine.check_machine(str(value), self._call.major)
        if name in guest.conf:
            privileges.check_hardware(self._call, vmid, name, guest.conf[name], verb="modify")
        privileges.check_hardware(self._call, vmid, name, value, verb="modify")
        if re.fullmatch(r"net\d+", name) and name in guest.conf:
            privileges.check_bridges(self._call, {name: guest.conf[name]})
        if name == "cipassword":
            guest.conf[name] = identity.hashed_password(guest.conf, str(value))
            return
        kept = vm.stored(name, value, self._call.major)
        if kept is not None:
            guest.pending[name] = kept


def _check_tpm(old: Drive | None, new: Drive) -> None:
    if old is None or old.slot != "tpmstate0" or old.file != new.file:
        return
    if old.options.get("version", "v1.2") != new.options.get("version", "v1.2"):
        raise die("cannot change TPM state version after creation")
