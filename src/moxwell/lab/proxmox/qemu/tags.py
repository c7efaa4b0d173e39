"""
Who may set which tags of a guest (``user-tag-access`` and ``registered-tags`` of the datacenter).
"""

from collections import Counter
from dataclasses import dataclass

from moxwell.lab.proxmox import datacenter_options
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import forbidden
from moxwell.lab.proxmox.qemu import privileges
from moxwell.lab.proxmox.request_context import PveCall


@dataclass(frozen=True, slots=True)
class TagChoice:
    """The tags that a caller may set, those of administrators, and whether any other is allowed."""

    allowed: frozenset[str]
    registered: frozenset[str]
    freeform: bool

    def allows(self, tag: str) -> bool:
        return (tag in self.allowed or self.freeform) and tag not in self.registered


def check(call: PveCall, vmid: int, old: str, new: str) -> None:
    """Check each tag that is added or removed."""
    privileges.check_guest(call, vmid, None, "VM.Config.Options")
    if call.has_privileges("/", "Sys.Modify"):
        return
    before, after = Counter(formats.split_list(old)), Counter(formats.split_list(new))
    choice = choose(call)
    for tag in sorted(before | after):
        if before[tag] != after[tag] and not choice.allows(tag):
            raise forbidden(f"/, Sys.Modify for modifying tag '{tag}'")


def choose(call: PveCall) -> TagChoice:
    """What the caller may set; registered tags are for those with Sys.Modify."""
    region, privileged = call.region, call.has_privileges("/", "Sys.Modify")
    registered = frozenset(datacenter_options.option(region, "registered-tags") or ())
    access = datacenter_options.option(region, "user-tag-access") or {}
    mode = access.get("user-allow", "free")
    found: set[str] = set()
    if mode != "none" or privileged:
        found |= set(access.get("user-allow-list", ()))
    if mode in ("free", "existing") or privileged:
        found |= _existing(call, everywhere=privileged)
    allowed = found | registered if privileged else found - registered
    return TagChoice(frozenset(allowed), registered, mode == "free")


def _existing(call: PveCall, *, everywhere: bool) -> set[str]:
    """The tags of all guests, or of those that the caller may audit."""
    found = set()
    for guest in call.region.guests.values():
        if everywhere or call.has_privileges(f"/vms/{guest.vmid}", "VM.Audit"):
            found |= set(formats.split_list(str(guest.conf.get("tags", ""))))
    return found
