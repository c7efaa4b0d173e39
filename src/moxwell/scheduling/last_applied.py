"""
What was put on a guest at the object's word, remembered so that what is taken out can be taken off.

In flow the memory of earlier passes, the spec and the drives that the guest shows; out flows the
new memory, and what is on the guest although the spec says it no longer. Only what we remember is
ever taken off: a tag, a rule or a disk of somebody else stays. A disk is remembered with its
volume, so that another volume in the same slot is never mistaken for it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from moxwell.api.infra.machine import Applied, AppliedDisk, MachineSpec


def wanted(spec: MachineSpec) -> Applied:
    """What the spec asks to be put on the guest."""
    care = spec.high_availability
    return Applied(
        tags=tuple(sorted({t.lower() for t in spec.tags})),
        firewall_groups=tuple(sorted(set(spec.firewall_groups))),
        disks=tuple(AppliedDisk(disk=slot) for slot in sorted(_slots(spec))),
        ha_group=(care.group or "") if care else "",
    )


def surplus(before: Applied, spec: MachineSpec) -> Applied:
    """What was put on the guest, and is not asked for any more."""
    now = wanted(spec)
    slots = _slots(spec)
    return Applied(
        tags=tuple(t for t in before.tags if t not in now.tags),
        firewall_groups=tuple(g for g in before.firewall_groups if g not in now.firewall_groups),
        disks=tuple(d for d in before.disks if d.disk not in slots),
        ha_group=before.ha_group if before.ha_group != now.ha_group else "",
    )


def remember(
    before: Applied,
    spec: MachineSpec,
    volumes: Mapping[str, str] | None = None,
    *,
    vmid: int = 0,
    done: bool = False,
) -> Applied:
    """The memory after a pass: everything while changes are under way, the spec when ``done``.

    ``volumes`` are the drives by slot, where the configuration was read; a disk that was taken out
    of the spec and is still there stays in memory, whatever else is done.
    """
    now, left = wanted(spec), surplus(before, spec)
    old = Applied() if done else left
    known = {d.disk: d.volume for d in before.disks}
    disks = [_seen(d, known, volumes, vmid) for d in now.disks]
    kept = left.disks if volumes is None else _kept(left.disks, volumes, vmid)
    return Applied(
        tags=_both(now.tags, old.tags),
        firewall_groups=_both(now.firewall_groups, old.firewall_groups),
        disks=tuple(sorted([*disks, *kept], key=lambda d: d.disk)),
        ha_group=old.ha_group or now.ha_group,
    )


def owns(volume: str, vmid: int) -> bool:
    """Does the volume's name say that it is a disk of this guest?"""
    name = volume.rpartition(":")[2].rpartition("/")[2]
    return bool(re.fullmatch(rf"(vm-{vmid}-disk-\d+|pm-[0-9a-f]{{8}}_{vmid})(\.\w+)?", name))


def _seen(
    disk: AppliedDisk, known: Mapping[str, str], volumes: Mapping[str, str] | None, vmid: int
) -> AppliedDisk:
    volume = known.get(disk.disk, "")
    if volumes is not None:
        there = volumes.get(disk.disk, "")
        volume = there if owns(there, vmid) else ""
    return AppliedDisk(disk=disk.disk, volume=volume)


def _kept(
    disks: Iterable[AppliedDisk], volumes: Mapping[str, str], vmid: int
) -> Iterator[AppliedDisk]:
    """Those that are still in their slots; which volume it is must be certain, or it is unknown."""
    for disk in disks:
        there = volumes.get(disk.disk, "")
        if owns(there, vmid):
            yield disk if disk.volume == there else AppliedDisk(disk=disk.disk)


def _slots(spec: MachineSpec) -> frozenset[str]:
    return frozenset(d.disk for d in spec.disks.extra) if spec.disks else frozenset()


def _both(one: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({*one, *other}))
