"""
A container's configuration: changing it, and what of it needs which privilege.

As with VMs, changes go through a pending part; a stopped container takes them at once, a running
one what can be changed live.
"""

import re
from typing import Any

from moxwell.lab.proxmox.config_schema import ct, formats
from moxwell.lab.proxmox.config_schema.drives import size_text
from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.config_schema.properties import Values, write
from moxwell.lab.proxmox.errors import PveError, bad_params, die, forbidden, param_error
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import identity, rights
from moxwell.lab.proxmox.request_context import Call
from moxwell.lab.proxmox.state import Conf, Guest, Row, Value
from moxwell.lab.proxmox.volumes import access, names

_NEW = re.compile(r"([^:\s]+):(\d+(?:\.\d+)?)")
_FAST = frozenset(
    words("description onboot startup protection hostname hookscript cores tags lock")
)
_LIVE = frozenset(words("cpulimit cpuunits memory swap"))
_OWN = frozenset(words("node vmid digest delete revert"))
PRIVILEGES = (
    "VM.Config.Disk",
    "VM.Config.CPU",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
)


def is_mount(key: str) -> bool:
    return key == "rootfs" or re.fullmatch(r"mp\d+", key) is not None


def mount(key: str, text: object) -> Values:
    return ct.read(ct.mount_form(key), text)


def is_volume(values: Values) -> bool:
    return not values.get("volume", "").startswith("/")


def shown(guest: Guest, conf: Conf) -> Row:
    """As GET config answers; descriptions end in a newline."""
    row = files.shown(guest, conf)
    if "description" in row:
        row["description"] = str(row["description"]).rstrip("\n") + "\n"
    return row


def pending_rows(guest: Guest) -> list[Row]:
    rows = files.pending_rows(guest)
    for row in rows:
        for part in ("value", "pending"):
            if row["key"] == "description" and part in row:
                row[part] = str(row[part]).rstrip("\n") + "\n"
    return rows


def check_options(
    call: Call, vmid: int, old: Conf, new: dict[str, Any], *, pool: str | None = None
) -> None:
    """The privileges for setting these options."""
    if call.is_root:
        return
    for name, value in new.items():
        _check_option(call, vmid, name, old, value, pool)


def check_deletes(call: Call, vmid: int, old: Conf, deletes: list[str]) -> None:
    if call.is_root:
        return
    for name in deletes:
        _check_option(call, vmid, name, old, None, None)


def _need(call: Call, vmid: int, pool: str | None, priv: str) -> None:
    if not (pool and call.may(f"/pool/{pool}", priv)):
        call.check_vm(vmid, priv)


def _check_option(
    call: Call, vmid: int, name: str, old: Conf, value: Any, pool: str | None
) -> None:
    if name in ("cores", "cpuunits", "cpulimit"):
        _need(call, vmid, pool, "VM.Config.CPU")
    elif is_mount(name):
        _need(call, vmid, pool, "VM.Config.Disk")
        if value is not None:
            _check_mount(call, vmid, mount(name, value))
    elif name in ("memory", "swap"):
        _need(call, vmid, pool, "VM.Config.Memory")
    elif re.fullmatch(r"net\d+", name):
        _need(call, vmid, pool, "VM.Config.Network")
        for text in (old.get(name), value):
            if text:
                net = ct.read(ct.NET, text)
                rights.check_bridge(call, net.get("bridge"), net.get("tag"), net.get("trunks"))
    elif name in ("nameserver", "searchdomain", "hostname"):
        _need(call, vmid, pool, "VM.Config.Network")
    elif re.fullmatch(r"dev\d+", name):
        raise forbidden("configuring device passthrough is only allowed for root@pam")
    elif name == "hookscript":
        raise forbidden("changing the hookscript is only allowed for root@pam")
    elif name == "features":
        raise forbidden("changing feature flags (except nesting) is only allowed for root@pam")
    else:
        _need(call, vmid, pool, "VM.Config.Options")


def _check_mount(call: Call, vmid: int, values: Values) -> None:
    if not is_volume(values):
        kind = "device" if values.get("volume", "").startswith("/dev/") else "bind"
        raise forbidden(f"mount point type {kind} is only allowed for root@pam")
    wanted = _NEW.fullmatch(values.get("volume", ""))
    if wanted is not None:
        call.check(f"/storage/{wanted[1]}", "Datastore.AllocateSpace")
    else:
        access.check_volume(call, files.stock(call), values["volume"], vmid=vmid)


# ---------------------------------------------------------------------- volumes


def make_volume(call: Call, vmid: int, key: str, text: str) -> tuple[str, str | None]:
    """The mount point's string with its volume, and the volume if it is new."""
    values, place = mount(key, text), files.stock(call)
    wanted = _NEW.fullmatch(values.get("volume", ""))
    if wanted is None:
        if is_volume(values):
            values["size"] = size_text(place.get(values["volume"]).size)
        return ct.write_mount(key, values), None
    storage = place.get_storage(wanted[1])
    size = int(float(wanted[2]) * (1 << 20)) << 10
    form = "subvol" if storage.type == "zfspool" or not size else "raw"
    if form == "subvol" and names.has_path(storage) and size:
        form = "raw"
    volid = place.alloc(wanted[1], vmid, form, size)
    place.get(volid).content = "rootdir"
    values["volume"], values["size"] = volid, size_text(size)
    return ct.write_mount(key, values), volid


def with_hwaddr(call: Call, text: str, *, fresh: bool = False) -> str:
    """A network card's string, complete and in normal form."""
    values = ct.read(ct.NET, text)
    if fresh or "hwaddr" not in values:
        values["hwaddr"] = identity.new_mac(call)
    values["type"] = "veth"
    return write(ct.NET, values)


# ---------------------------------------------------------------------- changing


async def put(call: Call) -> None:
    """PUT config."""
    vmid = call.params["vmid"]
    settings = {k: v for k, v in call.params.items() if k not in _OWN}
    deletes = formats.split_list(str(call.get("delete") or ""))
    reverts = formats.split_list(str(call.get("revert") or ""))
    if not settings and "delete" not in call.params and "revert" not in call.params:
        raise die("no options specified")
    async with call.hold("lxc", vmid):
        guest = call.get_guest(vmid, "lxc")
        files.check_lock(guest)
        files.check_digest(guest, call.get("digest"))
        check_deletes(call, vmid, guest.conf, [*deletes, *reverts])
        _check_lists(call, settings, deletes, reverts)
        check_options(call, vmid, guest.conf, settings)
        _Change(call, guest).perform(settings, deletes, reverts)


def _check_lists(
    call: Call, settings: dict[str, Any], deletes: list[str], reverts: list[str]
) -> None:
    known = ct.options(call.major)
    for name in reverts:
        if name not in known:
            raise bad_params(revert=f"unknown option '{name}'")
        if name in settings:
            text = f"you can't use '-{name}' and '-revert {name}' at the same time"
            raise bad_params(revert=text)
    for name in deletes:
        if name not in known:
            raise bad_params(delete=f"unknown option '{name}'")
        if name in settings:
            raise bad_params(delete=f"you can't use '-{name}' and -delete {name}' at the same time")
        if name in reverts:
            text = f"you can't use '-delete {name}' and '-revert {name}' at the same time"
            raise bad_params(delete=text)


class _Change:
    """One change of one container."""

    def __init__(self, call: Call, guest: Guest) -> None:
        self._call, self._guest = call, guest
        self._errors: dict[str, str] = {}

    def perform(self, settings: dict[str, Any], deletes: list[str], reverts: list[str]) -> None:
        guest = self._guest
        for name in reverts:
            guest.pending.pop(name, None)
            guest.deletes.pop(name, None)
        for name in deletes:
            self._delete(name)
        for name in sorted(settings):
            self._set(name, settings[name])
        files.cleanup_pending(guest)
        chosen = {*settings, *deletes}
        if guest.running:
            self._hotplug(chosen)
        else:
            self._apply(chosen)
        if self._errors:
            raise param_error(self._errors)
        files.write(self._call.desk, guest)

    def _delete(self, name: str) -> None:
        guest = self._guest
        if name not in guest.conf and name not in guest.pending:
            return
        if name in ("memory", "rootfs", "ostype"):
            raise die(f"unable to delete required option '{name}'")
        if name == "unprivileged":
            raise die(f"unable to delete read-only option: '{name}'")
        if re.fullmatch(r"(unused|mp)\d+", name):
            files.check_protection(guest, f"can't remove CT {guest.vmid} drive '{name}'")
        guest.pending.pop(name, None)
        guest.deletes[name] = 0

    def _set(self, name: str, value: Any) -> None:
        guest = self._guest
        if is_mount(name):
            files.check_protection(guest, f"can't update CT {guest.vmid} drive '{name}'")
            values = mount(name, value)
            if is_volume(values):
                storage = values["volume"].partition(":")[0]
                if "rootdir" not in files.stock(self._call).get_storage(storage).content:
                    raise die(
                        f"storage '{storage}' does not allow content type 'rootdir' (Container)"
                    )
        elif name == "unprivileged":
            raise die(f"unable to modify read-only option: '{name}'")
        elif name == "tags":
            value = identity.normal_tags(self._call, str(value)) or " "
        guest.pending[name] = ct.stored(name, value)
        guest.deletes.pop(name, None)

    def _apply(self, chosen: set[str]) -> None:
        guest = self._guest
        for name in sorted(n for n in guest.deletes if n in chosen):
            self._remove(name)
            guest.conf.pop(name, None)
            guest.deletes.pop(name, None)
        files.cleanup_pending(guest)
        for name in sorted(n for n in guest.pending if n in chosen):
            self._try(name, "apply pending change")

    def _remove(self, name: str) -> None:
        guest, call = self._guest, self._call
        text = str(guest.conf.get(name, ""))
        if re.fullmatch(r"mp\d+", name):
            values = mount(name, text)
            if is_volume(values) and not files.in_use(guest, name, values["volume"]):
                files.add_unused(guest.conf, values["volume"])
        elif name.startswith("unused") and not files.in_use(guest, name, text):
            place = files.stock(call)
            if files.is_owner(place, guest.vmid, text):
                place.free(text)

    def _try(self, name: str, what: str) -> None:
        guest = self._guest
        try:
            guest.conf[name] = self._made(name, guest.pending[name])
        except PveError as problem:
            self._errors[name] = f"unable to {what} {name} : {problem.message}\n"
        else:
            guest.pending.pop(name, None)

    def _made(self, name: str, value: Value) -> Value:
        if re.fullmatch(r"net\d+", name):
            return with_hwaddr(self._call, str(value))
        if re.fullmatch(r"mp\d+", name):
            return make_volume(self._call, self._guest.vmid, name, str(value))[0]
        return value

    def _hotplug(self, chosen: set[str]) -> None:
        guest = self._guest
        for name in sorted(n for n in guest.deletes if n in chosen):
            live = name in _FAST | {"swap", "cpulimit", "cpuunits"}
            if live or re.fullmatch(r"(net|unused)\d+", name):
                self._remove(name)
                guest.conf.pop(name, None)
                guest.deletes.pop(name, None)
        for name in sorted(n for n in guest.pending if n in chosen):
            fresh = re.fullmatch(r"mp\d+", name) and name not in guest.conf
            if name in _FAST | _LIVE or re.fullmatch(r"net\d+", name) or fresh:
                self._try(name, "hotplug")
