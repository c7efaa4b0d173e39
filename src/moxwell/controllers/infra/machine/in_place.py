"""
A guest that lives and is to be another: the one next change in place, or why there is none. Pure.

In flow the object and a guest that was looked at closely; out flows a step, a wait with a sentence,
or nothing. What the spec says is put on first, then what it says no longer is taken off: only what
``status.applied`` remembers as put on by us. A disk is deleted only where the spec allows it.
"""

from collections.abc import Mapping

from moxwell.api.infra.machine import Applied, ProxmoxMachine
from moxwell.api.infra.template import HighAvailability
from moxwell.controllers.infra.machine import steps
from moxwell.controllers.infra.machine.guest_agent import mark_of
from moxwell.controllers.infra.machine.observed import GuestFound
from moxwell.pve import property_strings
from moxwell.pve.guests import GuestConfig
from moxwell.pve.steps import (
    Configure,
    DropFirewallGroup,
    JoinHaRule,
    LeaveHaRule,
    RemoveDisk,
    RemoveHa,
    Step,
)
from moxwell.runtime.move import Wait
from moxwell.scheduling import guest_hardware, last_applied

# Why something asked for is not on the guest, or something not asked for is; the machine is well.
RULE_MISSING, RULE_KEPT = "HARuleNotFound", "HARuleKept"
GROUP_MISSING, SLOT_TAKEN, DISK_KEPT = "FirewallGroupNotFound", "SlotTaken", "DiskKept"
TOLD = frozenset({RULE_MISSING, RULE_KEPT, GROUP_MISSING, SLOT_TAKEN, DISK_KEPT})


def change(obj: ProxmoxMachine, found: GuestFound) -> Step | Wait | None:
    """What differs from the spec, changed in place; nothing if it is pending already."""
    if found.config is None:
        return None
    return (
        _configure(obj, found, found.config)
        or steps.growth(obj, found)
        or _group_missing(obj, found)
        or steps.guard(obj, found)
        or _unguard(obj, found)
        or _remove_disk(obj, found, found.config)
        or _care(obj, found)
        or _slot_taken(obj, found, found.config)
        or _disk_kept(obj, found, found.config)
    )


def is_done(left: Step | Wait | None) -> bool:
    """Is the guest as the spec says? A disk that is kept is no difference to wait for."""
    return left is None or (isinstance(left, Wait) and left.reason == DISK_KEPT)


def memory(obj: ProxmoxMachine, found: GuestFound | None) -> Applied:
    """What to remember of what was put on the guest, after a look at it."""
    config = found.config if found is not None and found.marked else None
    if found is None or config is None:
        return last_applied.remember(obj.status.applied, obj.spec)
    return last_applied.remember(
        obj.status.applied,
        obj.spec,
        volumes(config),
        vmid=found.seen.vmid,
        done=is_done(change(obj, found)),
    )


def volumes(config: GuestConfig) -> Mapping[str, str]:
    """The volumes in a guest's slots, media aside."""
    disks = {k: v for k, v in config.disks.items() if "media=cdrom" not in v}
    return {slot: property_strings.volume(value) for slot, value in disks.items()}


def _configure(obj: ProxmoxMachine, found: GuestFound, config: GuestConfig) -> Configure | None:
    claim, mark = obj.spec.claim, mark_of(obj)
    storage = (claim.storage if claim else "") or steps.storage_of(config)
    gone = last_applied.surplus(obj.status.applied, obj.spec).tags
    kept = [t for t in config.tags if t.lower() not in gone]
    changes = {
        **guest_hardware.compute(obj.spec),
        **guest_hardware.new_disks(obj.spec, config.raw, storage),
        "tags": mark.tags([*kept, *obj.spec.tags]),
    }
    if obj.spec.description is not None:
        changes["description"] = mark.describe(obj.spec.description)
    step = Configure(steps.guest(obj, found), changes=changes, digest=config.digest)
    return step if step.is_needed(config) else None


def _group_missing(obj: ProxmoxMachine, found: GuestFound) -> Wait | None:
    """A rule with a group that is not there guards nothing; the other groups stay as they are."""
    if not found.lacking_groups:
        return None
    names = ", ".join(found.lacking_groups)
    return Wait(GROUP_MISSING, f"region {obj.spec.region} has no firewall group {names}")


def _unguard(obj: ProxmoxMachine, found: GuestFound) -> DropFirewallGroup | None:
    for group in last_applied.surplus(obj.status.applied, obj.spec).firewall_groups:
        if group in found.firewall_groups:
            return DropFirewallGroup(steps.guest(obj, found), group=group)
    return None


def _remove_disk(obj: ProxmoxMachine, found: GuestFound, config: GuestConfig) -> RemoveDisk | None:
    """Only the very volume that was seen in the slot, and only if the spec allows it."""
    if obj.spec.disks is None or obj.spec.disks.when_removed != "Delete":
        return None
    there = volumes(config)
    for disk in last_applied.surplus(obj.status.applied, obj.spec).disks:
        if disk.volume and there.get(disk.disk) == disk.volume:
            return RemoveDisk(steps.guest(obj, found), slot=disk.disk, volid=disk.volume)
    return None


def _care(obj: ProxmoxMachine, found: GuestFound) -> Step | Wait | None:
    """HA's care as asked for; that of somebody else stays."""
    care, has = obj.spec.high_availability, found.ha
    if leave := _leave_rule(obj, found):
        return leave
    if care is None:
        ours = has is not None and mark_of(obj).line in has.comment
        return RemoveHa(steps.guest(obj, found)) if ours else None
    if found.care == "missing":
        said = f"region {obj.spec.region} has no HA rule {care.group!r}; HA's care is as it was"
        return Wait(RULE_MISSING, said)
    if step := _registered(obj, found, care):
        return step
    if found.care == "rule":
        return JoinHaRule(steps.guest(obj, found), rule=care.group or "")
    return None


def _registered(obj: ProxmoxMachine, found: GuestFound, care: HighAvailability) -> Step | None:
    has = found.ha
    step = steps.register(obj, found, (care.group or "") if found.care == "group" else "")
    if has is None:
        return step
    restart = 1 if has.max_restart is None else has.max_restart
    relocate = 1 if has.max_relocate is None else has.max_relocate
    same = (restart, relocate, has.group) == (step.max_restart, step.max_relocate, step.group)
    return None if same else step


def _leave_rule(obj: ProxmoxMachine, found: GuestFound) -> Step | Wait | None:
    """Out of the rule it was in before: Proxmox takes nobody into two of them."""
    rule = found.old_rule
    if rule is None or f"vm:{found.seen.vmid}" not in rule.sids:
        return None
    if len(rule.sids) > 1:
        return LeaveHaRule(steps.guest(obj, found), rule=rule.rule)
    said = f"guest {found.seen.vmid} is the last resource of HA rule {rule.rule!r}, which Proxmox"
    return Wait(RULE_KEPT, f"{said} does not keep without any: add another or remove the rule")


def _slot_taken(obj: ProxmoxMachine, found: GuestFound, config: GuestConfig) -> Wait | None:
    there, vmid = volumes(config), found.seen.vmid
    for disk in obj.spec.disks.extra if obj.spec.disks else ():
        held = there.get(disk.disk, "")
        if held and not last_applied.owns(held, vmid):
            return Wait(SLOT_TAKEN, f"{disk.disk} holds {held}, which is no disk of guest {vmid}")
    return None


def _disk_kept(obj: ProxmoxMachine, found: GuestFound, config: GuestConfig) -> Wait | None:
    there = volumes(config)
    known = last_applied.remember(obj.status.applied, obj.spec, there, vmid=found.seen.vmid)
    left = last_applied.surplus(known, obj.spec).disks
    if not left:
        return None
    names = ", ".join(f"{d.disk} ({there[d.disk]})" for d in left)
    allowed = obj.spec.disks is not None and obj.spec.disks.when_removed == "Delete"
    how = "put it back for a while" if allowed else "set spec.disks.whenRemoved: Delete"
    what = f"{names} is not in spec.disks.extra any more and was kept with its data"
    return Wait(DISK_KEPT, f"{what}: remove it in Proxmox, or {how}")
