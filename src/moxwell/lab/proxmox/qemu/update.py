"""
PUT and POST config, and PUT unlink: checked before the lock is taken, applied with it held.

PVE 8 takes the lock file before it checks ``lock`` and the digest; PVE 9 checks first, so a guest
being cloned is rejected immediately instead of waiting for the lock file.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from moxwell.lab.proxmox.config_schema import formats, vm
from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.errors import bad_params, die, param_error
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import disks, hotplug, identity, open_volumes, privileges
from moxwell.lab.proxmox.qemu.pending_writer import PendingChange, PendingWriter
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import SimGuest, Value
from moxwell.lab.proxmox.tasks import WorkerContext

_OWN = frozenset(
    words(
        "node vmid digest background_delay skip_cloud_init import-working-storage skiplock delete"
        " revert force"
    )
)


_INTERNAL = frozenset(
    words("meta parent runningcpu runningmachine running-nets-host-mtu snaptime vmstate")
)


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
        vm.clamp_cpuunits(settings)
        if not self._delete and not self._revert and not settings:
            raise die("no options specified")
        if "cdrom" in settings:
            settings["ide2"] = disks.as_cdrom(str(settings.pop("cdrom")))
        self._read_lists()
        disks.check_params(call, settings, replicated=self.vmid)
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
            raise bad_params(hookscript=f"'{volid}' is not in the snippets directory\n")
        if store.find(volid) is None:
            raise bad_params(hookscript=f"script '{volid}' does not exist\n")

    # ------------------------------------------------------------------ with the lock held

    def look(self) -> SimGuest:
        """The guest, after checking its lock, digest and memory."""
        guest = self.call.get_guest(self.vmid)
        files.check_digest(guest, self.digest)
        resumable = "vmstate" in self.delete and guest.lock == "suspended"
        if not self.skiplock and not resumable:
            files.check_lock(guest)
        self._check_balloon(guest)
        return guest

    def _with_suspended_state(self, guest: SimGuest) -> list[str]:
        """The options to delete; those that depend on a suspended state are deleted with it."""
        if "vmstate" not in self.delete:
            return self.delete
        related = ["lock"] if guest.lock == "suspended" else []
        state = ("runningmachine", "runningcpu", "running-nets-host-mtu")
        return [*self.delete, *related, *(name for name in state if guest.conf.get(name))]

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
        change = PendingChange(self.settings, self.delete, self.force)
        writer = PendingWriter(self.call, guest, ctx, change)
        for name in self._with_suspended_state(guest):
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
            errors = hotplug.apply(self.call, guest)
            if errors:
                raise param_error(errors)
            return
        hotplug_update = hotplug.HotplugUpdate(self.call, guest, modified)
        hotplug_update.run()
        open_volumes.add(self.call.runtime, guest)
        if hotplug_update.errors:
            raise param_error(hotplug_update.errors)


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
