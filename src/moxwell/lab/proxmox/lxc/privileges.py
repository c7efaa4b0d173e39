"""The privileges that options of a container configuration require."""

import re
from typing import Any

from moxwell.lab.proxmox.config_schema import ct
from moxwell.lab.proxmox.config_schema.property_strings import Values
from moxwell.lab.proxmox.errors import forbidden
from moxwell.lab.proxmox.lxc import conf as files
from moxwell.lab.proxmox.qemu import conf as vm_files
from moxwell.lab.proxmox.qemu import privileges, tags
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf
from moxwell.lab.proxmox.volumes import access


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
    elif files.is_mount(name):
        _need(call, vmid, pool, "VM.Config.Disk")
        if value is not None:
            _check_mount(call, vmid, files.mount(name, value))
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
        _check_features(call, vmid, old, value, pool)
    elif name == "tags":
        tags.check(call, vmid, str(old.get(name, "")), str(value or ""))
    else:
        _need(call, vmid, pool, "VM.Config.Options")


def _check_features(call: PveCall, vmid: int, old: Conf, value: Any, pool: str | None) -> None:
    """Users may change only ``nesting``, of unprivileged containers."""
    if not old.get("unprivileged", int(not old)):
        text = "changing feature flags for privileged container is only allowed for root@pam"
        raise forbidden(text)
    before = ct.read(ct.FEATURES, old.get("features", ""))
    after = ct.read(ct.FEATURES, value or "")
    changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    if changed - {"nesting"}:
        raise forbidden("changing feature flags (except nesting) is only allowed for root@pam")
    if changed:
        _need(call, vmid, pool, "VM.Allocate")


def _check_mount(call: PveCall, vmid: int, values: Values) -> None:
    if not files.is_volume(values):
        kind = "device" if values.get("volume", "").startswith("/dev/") else "bind"
        raise forbidden(f"mount point type {kind} is only allowed for root@pam")
    wanted = files.NEW_VOLUME.fullmatch(values.get("volume", ""))
    if wanted is not None:
        call.check(f"/storage/{wanted[1]}", "Datastore.AllocateSpace")
    else:
        access.check_volume(call, vm_files.volume_store(call), values["volume"], vmid=vmid)
