"""
What is left over: both sides listed, and the difference by mark. Pure.

In flow the guests and ISOs of a region that bear a mark, and every owner the API knows; out flow
those without an owner. An object that cannot be read is an owner all the same. What is new is left
alone for a while: its owner may be on its way.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from moxwell.controllers.infra.machine.observed import KEPT
from moxwell.pve.model import GuestSeen
from moxwell.pve.ownership import FAMILY_TAG, SHELL_TAG, Mark

PATIENCE_SECONDS = 600.0
_SEED = re.compile(r":iso/moxwell-seed-(\d+)-([0-9a-f]+)\.iso$")


@dataclass(frozen=True, slots=True)
class Orphan:
    """A guest or a seed disk whose owner is gone."""

    region: str
    host: str
    name: str  # the VMID, or the volume id
    key: str  # of the mark

    @property
    def is_guest(self) -> bool:
        return self.name.isdigit()


def orphaned_guests(
    region: str, guests: Iterable[GuestSeen], owners: Collection[str]
) -> tuple[Orphan, ...]:
    """Guests of machines that bear a mark nobody has; templates, kept ones, carriers excepted."""
    return tuple(
        Orphan(region, g.host, str(g.vmid), g.owner_keys[0])
        for g in guests
        if FAMILY_TAG in g.tags
        and KEPT not in g.tags
        and SHELL_TAG not in g.tags
        and not g.template
        and len(g.owner_keys) == 1
        and g.owner_keys[0] not in owners
    )


def orphaned_isos(
    region: str, host: str, volids: Iterable[str], wanted: Mapping[str, int]
) -> tuple[Orphan, ...]:
    """Seed disks of machines that are gone, or that have another id by now."""
    found = []
    for volid in volids:
        match = _SEED.search(volid)
        if match and wanted.get(match[2]) != int(match[1]):
            found.append(Orphan(region, host, volid, match[2]))
    return tuple(found)


def ripe(
    first_seen: dict[Orphan, float], now_there: Collection[Orphan], now: float
) -> list[Orphan]:
    """Those that have been orphans for long enough; forgets the ones that are not any more."""
    for gone in set(first_seen) - set(now_there):
        del first_seen[gone]
    for orphan in now_there:
        first_seen.setdefault(orphan, now)
    return sorted(
        (o for o, at in first_seen.items() if now - at >= PATIENCE_SECONDS),
        key=lambda o: (o.region, o.name),
    )


def key_of(uid: str) -> str:
    """The key that tags hold of a UID."""
    return Mark(uid).key
