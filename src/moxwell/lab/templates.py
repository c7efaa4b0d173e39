"""
Templates of the lab for versions of Kubernetes that its world does not name.

Tenants on genuine programs run whatever version is installed, and nodes need a template of that
version. A copy of the newest template under another number, name and tag is one.
"""

import re
from dataclasses import replace

from moxwell.lab.proxmox import pvestatd
from moxwell.lab.proxmox.state import Guest, Region

_TAG = re.compile(r"k8s-(v\d+\.\d+\.\d+)")
_DRIVE = re.compile(r"^(?:scsi|virtio|sata|ide)\d+$")


def version_of(guest: Guest) -> str:
    """The version that a template's tags name; empty: it is no template of nodes."""
    found = _TAG.search(str(guest.conf.get("tags", "")))
    return found[1] if found and guest.conf.get("template") else ""


def add_template(region: Region, version: str) -> None:
    """A template of this version, unless there is one; harmless to repeat."""
    known = [guest for guest in region.guests.values() if version_of(guest)]
    if not known or any(version_of(guest) == version for guest in known):
        return
    model = max(known, key=lambda guest: _rank(version_of(guest)))
    vmid = max(guest.vmid for guest in known) + 1
    while vmid in region.guests:
        vmid += 1
    region.guests[vmid] = _copied(region, model, vmid, version)
    pvestatd.look(region, {vmid})  # in the lists at once, as if it had always been there


def _copied(region: Region, model: Guest, vmid: int, version: str) -> Guest:
    old, conf = version_of(model), {}
    for key, value in model.conf.items():
        if isinstance(value, str):
            value = value.replace(old, version)
        if _DRIVE.match(key) and isinstance(value, str):
            value = _drive(region, model, value, vmid)
        conf[key] = value
    made = Guest(vmid, model.kind, model.node)
    made.incarnation, made.conf = region.next_number(), conf
    return made


def _drive(region: Region, model: Guest, text: str, vmid: int) -> str:
    """The same drive on a volume of its own."""
    storage, _, name = text.split(",")[0].partition(":")
    shelf = region.storages[storage].shelf(model.node) if storage in region.storages else {}
    if name not in shelf:
        return text
    own = name.replace(str(model.vmid), str(vmid))
    shelf[own] = replace(shelf[name], name=own, vmid=vmid)
    return text.replace(name, own)


def _rank(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
