"""
PUT and POST config, and PUT unlink: checked before the lock is taken, applied with it held.

PVE 8 takes the lock file before it checks ``lock`` and the digest; PVE 9 checks first, so a guest
being cloned is rejected immediately instead of waiting for the lock file.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from moxwell.lab.proxmox.config_schema import devices, formats, vm
from moxwell.lab.proxmox.config_schema.drives import (
    Drive,
    find_drive,
    has_compatible_options,
    is_drive,
    parse_drive,
)
from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.errors import bad_params, die, param_error
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import disks, hotplug, identity, open_volumes, privileges
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import SimGuest, Value
from moxwell.lab.proxmox.tasks import WorkerContext

_OWN = frozenset(
    words(
        "node vmid digest background_delay skip_cloud_init import-working-storage skiplock delete"
        " revert force"
    )
)


_INTERNAL = frozenset({"meta", "parent", "runningcpu", "runningmachine", "snaptime", "vmstate"})


def _readable(name: str, text: Value) -> bool:
    """Whether PVE can read a drive that it wrote; it drops a virtio drive without a medium."""
    drive = find_drive(name, text)
    return drive is None or has_compatible_options(drive)


class ConfigUpdate:
    """One request to change a configuration."""

    def __init__(self, call: PveCall, params: Mapping[str, Any]) -> None:
        self.call, self.vmid = call, int(params["vmid"])
        self.digest: str | None = params.get("digest")
        self.skiplock = bool(params.get("skiplock"))
        self.force = bool(params.get("force"))
        self.settings: dict[str, Value] = {k: v for k, v in params.items() if k not in _OWN}
        self.delete: list[str] = []
        self.revert: list[str] = []
        self.log = self._log_text(params)
        self._delete = str(params.get("delete") or "")
        self._revert = str(params.get("revert") or "")

    def _log_text(self, params: Mapping[str, Any]) -> str:
        shown = {k: v for k, v in params.items() if k not in ("node", "vmid", "digest")}
        shown.pop("background_delay", None)
        given = self.call.given
        words = [
            f"-{k} {'<hidden>' if k == 'cipassword' else given.get(k, v)}"
            for k, v in sorted(shown.items())
        ]
        return f"update VM {self.vmid}: {' '.join(words)}"

    # ------------------------------------------------------------------ before the lock

    def check(self) -> None:
        """Run all checks that precede the lock file."""
        call, settings = self.call, self.settings
        if self.skiplock and not call.is_root:
            raise bad_params(skiplock="Only root may use this option.")
        if settings.get("sshkeys") is not None:
            identity.check_ssh_keys(unquote(str(settings["sshkeys"])))
        if not self._delete and not self._revert and not settings:
            raise die("no options specified")
        if "cdrom" in settings:
            settings["ide2"] = disks.as_cdrom(str(settings.pop("cdrom")))
        self._read_lists()
        disks.check_params(call, settings)
        self._complete()
        privileges.check_options(call, self.vmid, self.delete)
        privileges.check_options(call, self.vmid, settings)
        privileges.check_storage(call, self.vmid, settings)
        privileges.check_bridges(call, settings)

    def _read_lists(self) -> None:
        known = vm.options(self.call.major)
        for name in formats.split_list(self._revert):
            if name not in known:
                raise bad_params(revert=f"unknown option '{name}'")
            if name in self.settings:
                text = f"you can't use '-{name}' and -revert {name}' at the same time"
                raise bad_params(delete=text)
            self.revert.append(name)
        for name in formats.split_list(self._delete):
            name = "ide2" if name == "cdrom" else name
            if name in self.settings:
                text = f"you can't use '-{name}' and -delete {name}' at the same time"
                raise bad_params(delete=text)
            if name in self.revert:
                text = f"you can't use '-delete {name}' and -revert {name}' at the same time"
                raise bad_params(revert=text)
            if name not in known and name not in _INTERNAL:
                raise bad_params(delete=f"unknown option '{name}'")
            self.delete.append(name)

    def _complete(self) -> None:
        """Generate missing values: MAC addresses and VM generation ids."""
        for name, value in self.settings.items():
            if re.fullmatch(r"net\d+", name):
                self.settings[name] = identity.with_mac(self.call, str(value))
            elif name == "vmgenid" and str(value) == "1":
                self.settings[name] = identity.new_uuid(self.call.runtime)
            elif name == "hookscript":
                self._check_hook(str(value))

    def _check_hook(self, volid: str) -> None:
        store = files.volume_store(self.call)
        if store.parse(volid).kind != "snippets":
            raise bad_params(hookscript=f"hookscript has to be a snippet: '{volid}'\n")
        if store.find(volid) is None:
            raise bad_params(hookscript=f"script '{volid}' does not exist\n")

    # ------------------------------------------------------------------ with the lock held

    def look(self) -> SimGuest:
        """The guest, after checking its lock, digest and memory."""
        guest = self.call.get_guest(self.vmid)
        files.check_digest(guest, self.digest)
        if not self.skiplock:
            files.check_lock(guest)
        self._check_balloon(guest)
        return guest

    def _check_balloon(self, guest: SimGuest) -> None:
        if "memory" not in self.settings and "balloon" not in self.settings:
            return
        conf = {**guest.conf, **guest.pending, **self.settings}
        if int(conf.get("balloon") or 0) > vm.memory_mib(conf):
            raise die("balloon value too large (must be smaller than assigned memory)")

    async def perform(self, ctx: WorkerContext | None) -> None:
        """Write all changes as pending, then apply those that can be applied."""
        guest = self.call.get_guest(self.vmid)
        if ctx is not None:
            ctx.log(self.log)
        for name in self.revert:
            if name in guest.conf:
                self.settings[name] = guest.conf[name]
            elif name in guest.pending:
                self.delete.append(name)
        writer = _PendingWriter(self, guest, ctx)
        for name in self.delete:
            writer.delete(name)
        for name in sorted(self.settings, key=lambda n: (n == "boot", n)):
            await writer.set(name, self.settings[name])
        files.cleanup_pending(guest)
        files.write(self.call.runtime, guest)
        self._apply(guest, writer.modified)

    def _apply(self, guest: SimGuest, modified: set[str]) -> None:
        if not files.is_pending(guest):
            return
        if not guest.running:
            hotplug.apply(self.call, guest)
            return
        hotplug_update = hotplug.HotplugUpdate(self.call, guest, modified)
        hotplug_update.run()
        open_volumes.add(self.call.runtime, guest)
        if hotplug_update.errors:
            raise param_error(hotplug_update.errors)


class _PendingWriter:
    """Writes one update to the pending section of a configuration."""

    def __init__(self, change: ConfigUpdate, guest: SimGuest, ctx: WorkerContext | None) -> None:
        self._change, self._guest, self._work = change, guest, ctx
        self._call = change.call
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
        elif is_drive(name):
            self._delete_drive(name, str(value), was_pending)
        elif name == "tags":
            privileges.check_options(self._call, guest.vmid, ["description"])
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
        privileges.check_options(self._call, self._guest.vmid, ["description"])
        self._guest.pending["tags"] = identity.normalize_tags(self._call, text) or " "

    def _set_plain(self, name: str, value: Value) -> None:
        guest, vmid = self._guest, self._guest.vmid
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


# ---------------------------------------------------------------------- endpoints


async def put(call: PveCall) -> None:
    """PUT config: synchronous."""
    await _now(ConfigUpdate(call, call.params))


async def _now(change: ConfigUpdate) -> None:
    change.check()
    if change.call.major >= 9:
        change.look()
    async with change.call.hold("qemu", change.vmid):
        change.look()
        await change.perform(None)


async def post(call: PveCall) -> str | None:
    """POST config: a worker, for which ``background_delay`` may wait."""
    change = ConfigUpdate(call, call.params)
    change.check()
    if call.major >= 9:
        change.look()
    upid = await _spawn(call, change)
    delay = call.get("background_delay")
    if not delay:
        return upid
    task = await call.runtime.workers.wait(upid, float(delay))
    if task.exitstatus is None:
        return upid
    if task.exitstatus == "OK" or task.exitstatus.startswith("WARNINGS"):
        return None
    raise die(f"failed to update VM {change.vmid}: {task.exitstatus}")


async def _spawn(call: PveCall, change: ConfigUpdate) -> str:
    """Start the worker; on PVE 8 it inherits the lock file that the request holds."""
    if call.major >= 9:

        async def locked(ctx: WorkerContext) -> None:
            async with call.hold("qemu", change.vmid):
                change.look()
                await change.perform(ctx)

        return call.spawn("qmconfig", change.vmid, locked)
    async with call.hold("qemu", change.vmid):
        change.look()

    async def inherited(ctx: WorkerContext) -> None:
        async with call.hold("qemu", change.vmid):
            await change.perform(ctx)

    return call.spawn("qmconfig", change.vmid, inherited)


async def unlink(call: PveCall) -> None:
    """PUT unlink: deletes drives."""
    params = dict(call.params)
    params["delete"] = params.pop("idlist")
    await _now(ConfigUpdate(call, params))
