"""
Which settings of the spec were applied to a guest, so that those removed from the spec can be
removed from the guest. Pure.

Only recorded settings are ever removed: tags, rules and disks of others stay. A disk is recorded
with its volume, so that another volume in the same slot is never mistaken for it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from moxwell.api.infra.machine import ProxmoxMachineSpec
from moxwell.api.infra.template import AppliedDisk, LastApplied
from moxwell.scheduling.guest_hardware import hardware_hash


def recorded(spec: ProxmoxMachineSpec) -> LastApplied:
    """What the claim lists as applied to the guest."""
    return (spec.claim.applied if spec.claim else None) or LastApplied()


def wanted(spec: ProxmoxMachineSpec) -> LastApplied:
    """What is recorded of a spec before it is applied."""
    care = spec.high_availability
    return LastApplied(
        tags=tuple(sorted({t.lower() for t in spec.tags})),
        firewall_groups=tuple(sorted(set(spec.firewall_groups))),
        disks=tuple(AppliedDisk(disk=slot) for slot in sorted(_slots(spec))),
        ha_group=(care.group or "") if care else "",
    )


def removed_settings(before: LastApplied, spec: ProxmoxMachineSpec) -> LastApplied:
    """What was applied to the guest and is no longer in the spec."""
    now = wanted(spec)
    slots = _slots(spec)
    return LastApplied(
        tags=tuple(t for t in before.tags if t not in now.tags),
        firewall_groups=tuple(g for g in before.firewall_groups if g not in now.firewall_groups),
        disks=tuple(d for d in before.disks if d.disk not in slots),
        ha_group=before.ha_group if before.ha_group != now.ha_group else "",
    )


def record(
    before: LastApplied,
    spec: ProxmoxMachineSpec,
    volumes: Mapping[str, str] | None = None,
    *,
    vmid: int = 0,
    done: bool = False,
) -> LastApplied:
    """
    The record for the claim: old and new settings while changes are made, the spec when ``done``.

    ``volumes`` are the volumes by slot, if the configuration was read. A disk that was removed from
    the spec and still exists stays in the record.
    """
    now, removed = wanted(spec), removed_settings(before, spec)
    old = LastApplied() if done else removed
    known = {d.disk: d.volume for d in before.disks}
    disks = [_observed(d, known, volumes, vmid) for d in now.disks]
    kept = removed.disks if volumes is None else _existing(removed.disks, volumes, vmid)
    return LastApplied(
        tags=_union(now.tags, old.tags),
        firewall_groups=_union(now.firewall_groups, old.firewall_groups),
        disks=tuple(sorted([*disks, *kept], key=lambda d: d.disk)),
        ha_group=old.ha_group or now.ha_group,
        hardware_hash=hardware_hash(spec) if done else before.hardware_hash,
    )


def is_disk_of(volume: str, vmid: int) -> bool:
    """Whether the volume's name says that it is a disk of this guest."""
    name = volume.rpartition(":")[2].rpartition("/")[2]
    return bool(re.fullmatch(rf"(vm-{vmid}-disk-\d+|pm-[0-9a-f]{{8}}_{vmid})(\.\w+)?", name))


def _observed(
    disk: AppliedDisk, known: Mapping[str, str], volumes: Mapping[str, str] | None, vmid: int
) -> AppliedDisk:
    volume = known.get(disk.disk, "")
    if volumes is not None:
        found = volumes.get(disk.disk, "")
        volume = found if is_disk_of(found, vmid) else ""
    return AppliedDisk(disk=disk.disk, volume=volume)


def _existing(
    disks: Iterable[AppliedDisk], volumes: Mapping[str, str], vmid: int
) -> Iterator[AppliedDisk]:
    """The disks still in their slots; without the volume if it is not the recorded one."""
    for disk in disks:
        found = volumes.get(disk.disk, "")
        if is_disk_of(found, vmid):
            yield disk if disk.volume == found else AppliedDisk(disk=disk.disk)


def _slots(spec: ProxmoxMachineSpec) -> frozenset[str]:
    return frozenset(d.disk for d in spec.disks.extra) if spec.disks else frozenset()


def _union(one: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({*one, *other}))
