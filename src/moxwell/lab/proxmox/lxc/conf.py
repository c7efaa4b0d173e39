"""
Updates of container configurations and the privileges that each option requires.

As with VMs, changes are first written as pending; a stopped container applies all of them, a
running one those that can be hotplugged.
"""

import re
from typing import Any

from moxwell.lab.proxmox.config_schema import ct, formats
from moxwell.lab.proxmox.config_schema.drives import size_text
from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.config_schema.property_strings import Values, write
from moxwell.lab.proxmox.errors import PveException, bad_params, die, forbidden, param_error
from moxwell.lab.proxmox.parameter_validation import MISSING
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import identity, privileges
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf, Row, SimGuest, Value
from moxwell.lab.proxmox.volumes import access, names

_NEW = re.compile(r"([^:\s]+):(\d+(?:\.\d+)?)")
_ALWAYS_HOTPLUGGABLE = frozenset(
    words("description onboot startup protection hostname hookscript cores tags lock")
)
_CGROUP_OPTIONS = frozenset(words("cpulimit cpuunits memory swap"))
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


def config_response(guest: SimGuest, conf: Conf) -> Row:
    """The response of GET config; descriptions end in a newline."""
    row = files.config_response(guest, conf)
    if "description" in row:
        row["description"] = str(row["description"]).rstrip("\n") + "\n"
    return row


def pending_rows(guest: SimGuest) -> list[Row]:
    rows = files.pending_rows(guest)
    for row in rows:
        for part in ("value", "pending"):
            if row["key"] == "description" and part in row:
                row[part] = str(row[part]).rstrip("\n") + "\n"
    return rows


def check_options(
    call: PveCall, vmid: int, old: Conf, new: dict[str, Any], *, pool: str | None = None
) -> None:
    """Check the privileges for setting these options."""
    if call.is_root:
        return
    for name, value in new.items():
        _check_option(call, vmid, name, old, value, pool)


def check_deletes(call: PveCall, vmid: int, old: Conf, deletes: list[str]) -> None:
    if call.is_root:
        return
    for name in deletes:
        _check_option(call, vmid, name, old, None, None)


def _need(call: PveCall, vmid: int, pool: str | None, priv: str) -> None:
    if not (pool and call.has_privileges(f"/pool/{pool}", priv)):
        call.check_vm(vmid, priv)


def _check_option(
    call: PveCall, vmid: int, name: str, old: Conf, value: Any, pool: str | None
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
                privileges.check_bridge(call, net.get("bridge"), net.get("tag"), net.get("trunks"))
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


def _check_mount(call: PveCall, vmid: int, values: Values) -> None:
    if not is_volume(values):
        kind = "device" if values.get("volume", "").startswith("/dev/") else "bind"
        raise forbidden(f"mount point type {kind} is only allowed for root@pam")
    wanted = _NEW.fullmatch(values.get("volume", ""))
    if wanted is not None:
        call.check(f"/storage/{wanted[1]}", "Datastore.AllocateSpace")
    else:
        access.check_volume(call, files.volume_store(call), values["volume"], vmid=vmid)


# ---------------------------------------------------------------------- volumes


def make_volume(call: PveCall, vmid: int, key: str, text: str) -> tuple[str, str | None]:
    """The mount point string with its volume, and the volume id if it is new."""
    values, store = mount(key, text), files.volume_store(call)
    wanted = _NEW.fullmatch(values.get("volume", ""))
    if wanted is None:
        if is_volume(values):
            values["size"] = size_text(store.get(values["volume"]).size)
        return ct.write_mount(key, values), None
    storage = store.get_storage(wanted[1])
    size = int(float(wanted[2]) * (1 << 20)) << 10
    form = "subvol" if storage.type == "zfspool" or not size else "raw"
    if form == "subvol" and names.has_path(storage) and size:
        form = "raw"
    volid = store.alloc(wanted[1], vmid, form, size)
    store.get(volid).content = "rootdir"
    values["volume"], values["size"] = volid, size_text(size)
    return ct.write_mount(key, values), volid


def with_hwaddr(call: PveCall, text: str, *, fresh: bool = False) -> str:
    """A network device string with a MAC address, in normalized form."""
    values = ct.read(ct.NET, text)
    if fresh or "hwaddr" not in values:
        values["hwaddr"] = identity.new_mac(call)
    values["type"] = "veth"
    return write(ct.NET, values)


# ---------------------------------------------------------------------- update


async def put(call: PveCall) -> None:
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
        check_digest(guest, call.get("digest"))
        check_deletes(call, vmid, guest.conf, [*deletes, *reverts])
        _check_lists(call, settings, deletes, reverts)
        check_options(call, vmid, guest.conf, settings)
        _Change(call, guest).perform(settings, deletes, reverts)
        check_networks(call, guest.conf)


def check_digest(guest: SimGuest, given: str | None) -> None:
    """Check the digest that a request gives."""
    if given and given != files.digest(guest):
        raise die("detected modified configuration - file changed by other user? Try again.")


def check_present(guest: SimGuest, key: str) -> None:
    """PVE parses the mount point that a request names, also one that is not configured."""
    if key in guest.conf:
        return
    missing = ("mp", "volume") if key.startswith("mp") else ("volume",)
    raise PveException(500, "format error", dict.fromkeys(missing, MISSING))


def check_networks(call: PveCall, conf: Conf) -> None:
    """
    The bridges of a configuration, which PVE reads when it writes the configuration of LXC.

    The change itself stays.
    """
    vnets = call.region.sdn.running.get("vnets", {})
    for key in sorted(k for k in conf if re.fullmatch(r"net\d+", k)):
        values = ct.read(ct.NET, conf[key])
        bridge = values.get("bridge")
        if bridge is None or bridge in call.host.bridges or bridge in vnets:
            continue
        if call.major >= 9 or "mtu" in values:
            raise die(f"bridge '{bridge}' does not exist")


def _check_hook(call: PveCall, volid: str) -> None:
    store = files.volume_store(call)
    if store.parse(volid).kind != "snippets":
        raise die(f"'{volid}' is not in the snippets directory")
    if store.find(volid) is None:
        raise die(f"script '{volid}' does not exist")


def _check_lists(
    call: PveCall, settings: dict[str, Any], deletes: list[str], reverts: list[str]
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
    """One update of one container."""

    def __init__(self, call: PveCall, guest: SimGuest) -> None:
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
        files.write(self._call.runtime, guest)

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
                if "rootdir" not in files.volume_store(self._call).get_storage(storage).content:
                    raise die(
                        f"storage '{storage}' does not allow content type 'rootdir' (Container)"
                    )
        elif name == "unprivileged":
            raise die(f"unable to modify read-only option: '{name}'")
        elif name == "hookscript":
            _check_hook(self._call, str(value))
        elif name == "tags":
            value = identity.normalize_tags(self._call, str(value)) or " "
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
            store = files.volume_store(call)
            if files.is_owner(store, guest.vmid, text):
                store.free(text)

    def _try(self, name: str, verb: str) -> None:
        guest = self._guest
        try:
            guest.conf[name] = self._made(name, guest.pending[name])
        except PveException as problem:
            self._errors[name] = f"unable to {verb} {name} : {problem.message}\n"
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
            live = name in _ALWAYS_HOTPLUGGABLE | {"swap", "cpulimit", "cpuunits"}
            if live or re.fullmatch(r"(net|unused)\d+", name):
                self._remove(name)
                guest.conf.pop(name, None)
                guest.deletes.pop(name, None)
        for name in sorted(n for n in guest.pending if n in chosen):
            fresh = re.fullmatch(r"mp\d+", name) and name not in guest.conf
            if (
                name in _ALWAYS_HOTPLUGGABLE | _CGROUP_OPTIONS
                or re.fullmatch(r"net\d+", name)
                or fresh
            ):
                self._try(name, "hotplug")


def check_mount(call: PveCall, values: Values) -> None:
    """Check the storage of a new mount point."""
    if not is_volume(values):
        if not call.is_root:
            raise die("Only root can pass arbitrary filesystem paths.")
        return
    name = values["volume"].partition(":")[0]
    storage = files.volume_store(call).get_enabled(name)
    if "rootdir" not in storage.content:
        raise bad_params(storage=f"storage '{name}' does not support container directories")
    call.check(f"/storage/{name}", "Datastore.AllocateSpace")
