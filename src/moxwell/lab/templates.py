"""
Adds templates for Kubernetes versions that the world file of the lab does not have.

A tenant with control plane binaries runs the installed version, and its nodes need a template of
that version. The new template is a copy of the newest one with another VMID, name and tag.
"""

import re
from dataclasses import replace

from moxwell.lab.proxmox import pvestatd
from moxwell.lab.proxmox.state import SimGuest, SimRegion

_TAG = re.compile(r"k8s-(v\d+\.\d+\.\d+)")
_DRIVE = re.compile(r"^(?:scsi|virtio|sata|ide)\d+$")


def version_of(guest: SimGuest) -> str:
    """The Kubernetes version in the tags of a template; empty for any other guest."""
    found = _TAG.search(str(guest.conf.get("tags", "")))
    return found[1] if found and guest.conf.get("template") else ""


def add_template(region: SimRegion, version: str) -> None:
    """Add a template for this version unless there is one."""
    known = [guest for guest in region.guests.values() if version_of(guest)]
    if not known or any(version_of(guest) == version for guest in known):
        return
    model = max(known, key=lambda guest: _rank(version_of(guest)))
    vmid = max(guest.vmid for guest in known) + 1
    while vmid in region.guests:
        vmid += 1
    region.guests[vmid] = _copied(region, model, vmid, version)
    pvestatd.update(region, {vmid})  # appears in /cluster/resources immediately


def _copied(region: SimRegion, model: SimGuest, vmid: int, version: str) -> SimGuest:
    old, conf = version_of(model), {}
    for key, value in model.conf.items():
        if isinstance(value, str):
            value = value.replace(old, version)
        if _DRIVE.match(key) and isinstance(value, str):
            value = _drive(region, model, value, vmid)
        conf[key] = value
    made = SimGuest(vmid, model.kind, model.node)
    made.incarnation, made.conf = region.next_number(), conf
    return made


def _drive(region: SimRegion, model: SimGuest, text: str, vmid: int) -> str:
    """Copy a drive to a new volume."""
    storage, _, name = text.split(",")[0].partition(":")
    volumes = region.storages[storage].volumes_on(model.node) if storage in region.storages else {}
    if name not in volumes:
        return text
    own = name.replace(str(model.vmid), str(vmid))
    volumes[own] = replace(volumes[name], name=own, vmid=vmid)
    return text.replace(name, own)


def _rank(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
