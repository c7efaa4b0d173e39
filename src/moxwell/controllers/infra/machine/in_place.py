"""
The next change of a running guest in place, or why there is none. Pure.

Settings of the spec are applied first; then settings that were removed from the spec are removed
from the guest, if ``spec.claim.applied`` lists them. A disk is deleted only if the spec allows it.
"""

from collections.abc import Mapping

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.machine_reasons import ProxmoxMachineReason
from moxwell.api.infra.template import HighAvailability, LastApplied
from moxwell.controllers.infra.guest_names import mark_of
from moxwell.controllers.infra.machine import steps
from moxwell.controllers.infra.machine.observed import MachineGuest
from moxwell.pve import property_strings
from moxwell.pve.guests import GuestConfig
from moxwell.pve.ownership import user_tags
from moxwell.pve.steps import (
    AddToHaRule,
    Configure,
    RemoveDisk,
    RemoveFirewallGroup,
    RemoveFromHaRule,
    RemoveHa,
    SetPool,
    Step,
)
from moxwell.runtime.move import Wait
from moxwell.scheduling import guest_hardware, last_applied

KEPT_DISK_SECONDS = 600.0  # until the guest is read again, for a disk that somebody may remove
# The guest differs from the spec and cannot be changed; the machine is ready nevertheless.
NOT_UP_TO_DATE = frozenset({
    ProxmoxMachineReason.HA_RULE_NOT_FOUND,
    ProxmoxMachineReason.HA_RULE_KEPT,
    ProxmoxMachineReason.FIREWALL_GROUP_NOT_FOUND,
    ProxmoxMachineReason.SLOT_TAKEN,
    ProxmoxMachineReason.DISK_KEPT,
    ProxmoxMachineReason.QUOTA_EXCEEDED,
    ProxmoxMachineReason.OUTSIDE_TENANT,
})  # fmt: skip


def change(obj: ProxmoxMachine, found: MachineGuest) -> Step | Wait | None:
    """The first difference from the spec; None if there is none or it is pending already."""
    if found.config is None:
        return None
    return (
        _configure(obj, found, found.config)
        or _set_pool(obj, found)
        or steps.grow_disk(obj, found)
        or _group_missing(obj, found)
        or steps.set_firewall(obj, found)
        or _remove_group(obj, found)
        or _remove_disk(obj, found, found.config)
        or _ha(obj, found)
        or _slot_taken(obj, found, found.config)
        or _disk_kept(obj, found, found.config)
    )


def is_done(change: Step | Wait | None) -> bool:
    """Whether the spec is applied; a disk that is kept does not count."""
    kept = isinstance(change, Wait) and change.reason == ProxmoxMachineReason.DISK_KEPT
    return change is None or kept


def applied_record(obj: ProxmoxMachine, found: MachineGuest) -> LastApplied:
    """What the claim must list before the next change, or after the last one."""
    if found.config is None or not found.marked:
        return last_applied.record(last_applied.recorded(obj.spec), obj.spec)
    return last_applied.record(
        last_applied.recorded(obj.spec),
        obj.spec,
        volumes(found.config),
        vmid=found.seen.vmid,
        done=is_done(change(obj, found)),
    )


def volumes(config: GuestConfig) -> Mapping[str, str]:
    """The volumes by slot, without CD-ROM drives."""
    disks = {k: v for k, v in config.disks.items() if "media=cdrom" not in v}
    return {slot: property_strings.volume(value) for slot, value in disks.items()}


def _configure(obj: ProxmoxMachine, found: MachineGuest, config: GuestConfig) -> Configure | None:
    claim, mark = obj.spec.claim, mark_of(obj)
    storage = (claim.storage if claim else "") or steps.storage_of(config)
    removed = _removed(obj).tags
    kept = [t for t in config.tags if t.lower() not in removed]
    changes = {
        **guest_hardware.compute(obj.spec),
        **guest_hardware.new_disks(obj.spec, config.raw, storage),
        "tags": mark.tags([*kept, *user_tags(obj.spec.tags)]),
    }
    if obj.spec.description is not None:
        changes["description"] = mark.describe(guest_hardware.description(obj.spec))
    step = Configure(steps.guest(obj, found), changes=changes, digest=config.digest)
    return step if step.is_needed(config) else None


def moves_pool(obj: ProxmoxMachine, found: MachineGuest) -> bool:
    """Whether the spec names another resource pool than the guest is in."""
    return bool(obj.spec.pool) and obj.spec.pool != found.seen.pool


def _set_pool(obj: ProxmoxMachine, found: MachineGuest) -> SetPool | None:
    if not moves_pool(obj, found):
        return None
    return SetPool(steps.guest(obj, found), pool=obj.spec.pool or "")


def _group_missing(obj: ProxmoxMachine, found: MachineGuest) -> Wait | None:
    """A rule with an undefined group has no effect, so no rule is written."""
    if not found.unknown_groups:
        return None
    message = f"region {obj.spec.region} has no firewall group {', '.join(found.unknown_groups)}"
    return Wait(ProxmoxMachineReason.FIREWALL_GROUP_NOT_FOUND, message)


def _remove_group(obj: ProxmoxMachine, found: MachineGuest) -> RemoveFirewallGroup | None:
    for group in _removed(obj).firewall_groups:
        if group in found.firewall_groups:
            return RemoveFirewallGroup(steps.guest(obj, found), group=group)
    return None


def _remove_disk(
    obj: ProxmoxMachine, found: MachineGuest, config: GuestConfig
) -> RemoveDisk | None:
    """Delete only the volume that is recorded, and only if the spec allows it."""
    if obj.spec.disks is None or obj.spec.disks.when_removed != "Delete":
        return None
    found_volumes = volumes(config)
    for disk in _removed(obj).disks:
        if disk.volume and found_volumes.get(disk.disk) == disk.volume:
            return RemoveDisk(steps.guest(obj, found), slot=disk.disk, volid=disk.volume)
    return None


def _ha(obj: ProxmoxMachine, found: MachineGuest) -> Step | Wait | None:
    """The HA resource and its rule; an HA resource that somebody else registered stays."""
    wanted, has = obj.spec.high_availability, found.ha
    if leave := _leave_rule(obj, found):
        return leave
    if wanted is None:
        ours = has is not None and mark_of(obj).line in has.comment
        return RemoveHa(steps.guest(obj, found)) if ours else None
    if found.ha_mode == "missing":
        message = f"region {obj.spec.region} has no HA rule {wanted.group!r}; HA is unchanged"
        return Wait(ProxmoxMachineReason.HA_RULE_NOT_FOUND, message)
    if step := _register(obj, found, wanted):
        return step
    if found.ha_mode == "rule":
        return AddToHaRule(steps.guest(obj, found), rule=wanted.group or "")
    return None


def _register(obj: ProxmoxMachine, found: MachineGuest, wanted: HighAvailability) -> Step | None:
    has = found.ha
    group = (wanted.group or "") if found.ha_mode == "group" else ""
    step = steps.register_ha(obj, found, group)
    if has is None:
        return step
    restart = 1 if has.max_restart is None else has.max_restart
    relocate = 1 if has.max_relocate is None else has.max_relocate
    same = (restart, relocate, has.group) == (step.max_restart, step.max_relocate, step.group)
    return None if same else step


def _leave_rule(obj: ProxmoxMachine, found: MachineGuest) -> Step | Wait | None:
    """Leave the previous rule first: Proxmox allows a resource in one rule only."""
    rule = found.previous_rule
    if rule is None or f"vm:{found.seen.vmid}" not in rule.sids:
        return None
    if len(rule.sids) > 1:
        return RemoveFromHaRule(steps.guest(obj, found), rule=rule.rule)
    what = f"guest {found.seen.vmid} is the last resource of HA rule {rule.rule!r}, and Proxmox"
    message = f"{what} has no rules without resources: add another one or delete the rule"
    return Wait(ProxmoxMachineReason.HA_RULE_KEPT, message)


def _slot_taken(obj: ProxmoxMachine, found: MachineGuest, config: GuestConfig) -> Wait | None:
    by_slot, vmid = volumes(config), found.seen.vmid
    for disk in obj.spec.disks.extra if obj.spec.disks else ():
        volume = by_slot.get(disk.disk, "")
        if volume and not last_applied.is_disk_of(volume, vmid):
            message = f"{disk.disk} holds {volume}, which is not a disk of guest {vmid}"
            return Wait(ProxmoxMachineReason.SLOT_TAKEN, message)
    return None


def _disk_kept(obj: ProxmoxMachine, found: MachineGuest, config: GuestConfig) -> Wait | None:
    by_slot = volumes(config)
    known = last_applied.record(
        last_applied.recorded(obj.spec), obj.spec, by_slot, vmid=found.seen.vmid
    )
    kept = last_applied.removed_settings(known, obj.spec).disks
    if not kept:
        return None
    names = ", ".join(f"{d.disk} ({by_slot[d.disk]})" for d in kept)
    allowed = obj.spec.disks is not None and obj.spec.disks.when_removed == "Delete"
    how = "add it again for a while" if allowed else "set spec.disks.whenRemoved: Delete"
    message = (
        f"{names} was removed from spec.disks.extra and is kept with its data: "
        f"remove it in Proxmox, or {how}"
    )
    return Wait(ProxmoxMachineReason.DISK_KEPT, message, KEPT_DISK_SECONDS)


def _removed(obj: ProxmoxMachine) -> LastApplied:
    return last_applied.removed_settings(last_applied.recorded(obj.spec), obj.spec)
