"""
PUT config of a container.

As with VMs, changes are first written as pending; a stopped container applies all of them, a
running one those that can be hotplugged. A change that fails is not written at all.
"""

import re
from typing import Any

from moxwell.lab.proxmox.bridges import BRIDGE_MTU, has_bridge
from moxwell.lab.proxmox.config_schema import ct, formats, vm
from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.errors import PveException, bad_params, die, param_error
from moxwell.lab.proxmox.lxc import conf as files
from moxwell.lab.proxmox.lxc import privileges
from moxwell.lab.proxmox.qemu import conf as vm_files
from moxwell.lab.proxmox.qemu import identity
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import SimGuest, Value

_ALWAYS_HOTPLUGGABLE = frozenset(
    words("description onboot startup protection hostname hookscript cores tags lock")
)
_CGROUP_OPTIONS = frozenset(words("cpulimit cpuunits memory swap"))
_OWN = frozenset(words("node vmid digest delete revert"))


async def put(call: PveCall) -> None:
    """PUT config."""
    vmid = call.params["vmid"]
    settings = {k: v for k, v in call.params.items() if k not in _OWN}
    vm.clamp_cpuunits(settings)
    deletes = formats.split_list(str(call.get("delete") or ""))
    reverts = formats.split_list(str(call.get("revert") or ""))
    if not settings and "delete" not in call.params and "revert" not in call.params:
        raise die("no options specified")
    async with call.hold("lxc", vmid):
        guest = call.get_guest(vmid, "lxc")
        vm_files.check_lock(guest)
        files.check_digest(guest, call.get("digest"))
        privileges.check_deletes(call, vmid, guest.conf, [*deletes, *reverts])
        _check_lists(call, settings, deletes, reverts)
        privileges.check_options(call, vmid, guest.conf, settings)
        _check_replicable(call, vmid, settings)
        ContainerUpdate(call, guest).perform(settings, deletes, reverts)
        files.check_networks(call, guest.conf)


def _check_replicable(call: PveCall, vmid: int, settings: dict[str, Any]) -> None:
    """A container with a replication job accepts only volumes that can be replicated."""
    jobs = [j for j in call.region.replication.values() if str(j.get("guest")) == str(vmid)]
    for name in [n for n in settings if jobs and files.is_mount(n)]:
        values = files.mount(name, settings[name])
        if values.get("replicate") == "0":
            continue
        storage = values.get("volume", "").partition(":")[0]
        known = call.region.storages.get(storage)
        if known is None or (known.type != "zfspool" and not known.shared):
            raise die("cannot add non-replicatable volume to a replicated VM")


def check_settings(call: PveCall, settings: dict[str, Any]) -> None:
    """Check and normalize the options of a new container."""
    for name in sorted(settings):
        settings[name] = _checked(call, name, settings[name])


def _checked(call: PveCall, name: str, value: Any) -> Any:
    if name == "hookscript":
        check_hook(call, str(value))
    elif name == "tags":
        return identity.normalize_tags(call, str(value)) or " "
    elif name in ("nameserver", "searchdomain"):
        return " ".join(formats.split_list(str(value)))
    elif re.fullmatch(r"net\d+", name):
        _check_mtu(call, name, str(value))
    return value


def _check_mtu(call: PveCall, name: str, text: str) -> None:
    """The MTU of a network device is at most that of its bridge."""
    net = ct.read(ct.NET, text)
    mtu, bridge = net.get("mtu"), net.get("bridge")
    if not mtu or not bridge:
        return
    if not has_bridge(call, bridge):
        raise die(f"bridge '{bridge}' does not exist")
    if int(mtu) > BRIDGE_MTU:
        raise die(f"{name}: MTU size '{mtu}' is bigger than bridge MTU '{BRIDGE_MTU}'")


def check_hook(call: PveCall, volid: str) -> None:
    store = vm_files.volume_store(call)
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


class ContainerUpdate:
    """One update of one container."""

    def __init__(self, call: PveCall, guest: SimGuest) -> None:
        self._call, self._guest = call, guest
        self._errors: dict[str, str] = {}

    def perform(self, settings: dict[str, Any], deletes: list[str], reverts: list[str]) -> None:
        """Perform the whole change, or none of it."""
        guest = self._guest
        before = (dict(guest.conf), dict(guest.pending), dict(guest.deletes))
        done = False
        try:
            self._perform(settings, deletes, reverts)
            done = True
        finally:
            if not done:
                guest.conf, guest.pending, guest.deletes = before
        vm_files.write(self._call.runtime, guest)

    def apply_all(self) -> None:
        """Apply all pending changes of a stopped container."""
        self._apply({*self._guest.pending, *self._guest.deletes})
        vm_files.write(self._call.runtime, self._guest)

    def _perform(self, settings: dict[str, Any], deletes: list[str], reverts: list[str]) -> None:
        guest = self._guest
        for name in reverts:
            guest.pending.pop(name, None)
            guest.deletes.pop(name, None)
        for name in deletes:
            self._delete(name)
        for name in sorted(settings):
            self._set(name, settings[name])
        vm_files.cleanup_pending(guest)
        chosen = {*settings, *deletes}
        if guest.running:
            self._hotplug(chosen)
        else:
            self._apply(chosen)
        if self._errors:
            raise param_error(self._errors)

    def _delete(self, name: str) -> None:
        guest = self._guest
        if name not in guest.conf and name not in guest.pending:
            return
        if name in ("memory", "rootfs", "ostype"):
            raise die(f"unable to delete required option '{name}'")
        if name == "unprivileged":
            raise die(f"unable to delete read-only option: '{name}'")
        if re.fullmatch(r"(unused|mp)\d+", name):
            vm_files.check_protection(guest, f"can't remove CT {guest.vmid} drive '{name}'")
        guest.pending.pop(name, None)
        guest.deletes[name] = 0

    def _set(self, name: str, value: Any) -> None:
        guest = self._guest
        if files.is_mount(name):
            vm_files.check_protection(guest, f"can't update CT {guest.vmid} drive '{name}'")
            values = files.mount(name, value)
            if files.is_volume(values):
                storage = values["volume"].partition(":")[0]
                if "rootdir" not in vm_files.volume_store(self._call).get_storage(storage).content:
                    raise die(
                        f"storage '{storage}' does not allow content type 'rootdir' (Container)"
                    )
        elif name == "unprivileged":
            raise die(f"unable to modify read-only option: '{name}'")
        value = _checked(self._call, name, value)
        guest.pending[name] = ct.stored(name, value)
        guest.deletes.pop(name, None)

    def _apply(self, chosen: set[str]) -> None:
        guest = self._guest
        for name in sorted(n for n in guest.deletes if n in chosen):
            self._remove(name)
            guest.conf.pop(name, None)
            guest.deletes.pop(name, None)
        vm_files.cleanup_pending(guest)
        for name in sorted(n for n in guest.pending if n in chosen):
            self._try(name, f"unable to apply pending change {name} : ")

    def _remove(self, name: str) -> None:
        guest, call = self._guest, self._call
        text = str(guest.conf.get(name, ""))
        if re.fullmatch(r"mp\d+", name):
            values = files.mount(name, text)
            if files.is_volume(values):
                vm_files.add_unused(guest.conf, values["volume"])
        elif name.startswith("unused") and not vm_files.in_use(guest, name, text):
            store = vm_files.volume_store(call)
            if vm_files.is_owner(store, guest.vmid, text):
                store.free(text)

    def _try(self, name: str, failure: str) -> None:
        guest, old = self._guest, self._guest.conf.get(name)
        try:
            guest.conf[name] = self._made(name, guest.pending[name])
        except PveException as problem:
            self._errors[name] = f"{failure}{problem.message}\n"
            return
        guest.pending.pop(name, None)
        if old is not None and re.fullmatch(r"mp\d+", name):
            was, now = files.mount(name, old), files.mount(name, guest.conf[name])
            if files.is_volume(was) and was["volume"] != now.get("volume"):
                vm_files.add_unused(guest.conf, was["volume"])

    def _made(self, name: str, value: Value) -> Value:
        if re.fullmatch(r"net\d+", name):
            return files.with_hwaddr(self._call, str(value))
        if re.fullmatch(r"mp\d+", name):
            return files.make_volume(self._call, self._guest.vmid, name, str(value))[0]
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
                self._try(name, f"unable to hotplug {name}: ")
