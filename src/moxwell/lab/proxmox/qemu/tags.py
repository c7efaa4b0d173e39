"""
Who may set which tags of a guest (``user-tag-access`` and ``registered-tags`` of the datacenter).
"""

from collections import Counter

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.config_schema.property_strings import split
from moxwell.lab.proxmox.errors import forbidden
from moxwell.lab.proxmox.qemu import privileges
from moxwell.lab.proxmox.request_context import PveCall


def check(call: PveCall, vmid: int, old: str, new: str) -> None:
    """Check each tag that is added or removed."""
    privileges.check_guest(call, vmid, None, "VM.Config.Options")
    if call.has_privileges("/", "Sys.Modify"):
        return
    before, after = Counter(formats.split_list(old)), Counter(formats.split_list(new))
    allowed, privileged, freeform = _allowed(call)
    for tag in sorted(before | after):
        if before[tag] == after[tag]:
            continue
        if (tag not in allowed and not freeform) or tag in privileged:
            raise forbidden(f"/, Sys.Modify for modifying tag '{tag}'")


def _allowed(call: PveCall) -> tuple[set[str], set[str], bool]:
    """The tags of the list, those of administrators, and whether any other tag is allowed."""
    options = call.region.options
    access = split(str(options.get("user-tag-access") or ""), None)
    privileged = set(formats.split_list(str(options.get("registered-tags") or "")))
    mode = access.get("user-allow", "free")
    allowed = set()
    if mode in ("list", "existing"):
        allowed |= set(formats.split_list(access.get("user-allow-list", "")))
    if mode == "existing":
        allowed |= _existing(call)
    return allowed - privileged, privileged, mode == "free"


def _existing(call: PveCall) -> set[str]:
    """The tags of the guests that the caller may audit."""
    found = set()
    for guest in call.region.guests.values():
        if call.has_privileges(f"/vms/{guest.vmid}", "VM.Audit"):
            found |= set(formats.split_list(str(guest.conf.get("tags", ""))))
    return found
