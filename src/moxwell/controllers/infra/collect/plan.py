"""
Decides which guests and bootstrap ISOs are orphans: their owner mark names no object. Pure.

A new orphan is left alone for ten minutes, because its owner may not be in the cache yet.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from moxwell.controllers.infra.guest_names import BOOTSTRAP_ISO, KEPT
from moxwell.pve.model import ObservedGuest
from moxwell.pve.ownership import FAMILY_TAG, Mark, is_helper_vm
from moxwell.pve.steps import DeleteVolume, StorageOnHost

GRACE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Orphan:
    """A guest or a bootstrap ISO whose owner does not exist."""

    region: str
    host: str
    name: str  # the VMID, or the volume ID
    key: str  # of the owner mark
    scope: str = ""  # the cluster that added the region

    @property
    def is_guest(self) -> bool:
        return self.name.isdigit()


@dataclass(frozen=True, slots=True)
class ObservedOrphans:
    """The orphans of all reachable regions, since when each is known, and the time."""

    regions: tuple[str, ...] = ()
    since: Mapping[Orphan, float] = field(default_factory=dict)
    now: float = 0.0
    owners_unreadable: bool = False  # a ProxmoxMachine cannot be decoded and may be the owner


@dataclass(frozen=True, slots=True)
class CollectOrphans:
    """Report these guests and delete these ISOs."""

    regions: tuple[str, ...]
    guests: tuple[Orphan, ...]
    deletions: tuple[tuple[str, DeleteVolume], ...] = ()  # each with the scope of its region


def plan(seen: ObservedOrphans) -> CollectOrphans:
    """
    Report guests, never delete them; delete ISOs.

    Another management cluster may own a guest on the same Proxmox VE cluster.
    """
    due = [o for o, since in seen.since.items() if seen.now - since >= GRACE_SECONDS]
    orphans = sorted(due, key=lambda o: (o.region, o.name))
    isos = [] if seen.owners_unreadable else [o for o in orphans if not o.is_guest]
    deletions = tuple((o.scope, _delete(o)) for o in isos)
    return CollectOrphans(seen.regions, tuple(o for o in orphans if o.is_guest), deletions)


def orphaned_guests(
    region: str, guests: Iterable[ObservedGuest], owners: Collection[str]
) -> tuple[Orphan, ...]:
    """Guests with an unknown owner mark, without templates, kept guests and CSI helper VMs."""
    return tuple(
        Orphan(region, g.host, str(g.vmid), g.owner_keys[0])
        for g in guests
        if FAMILY_TAG in g.tags
        and KEPT not in g.tags
        and not is_helper_vm(g.tags)
        and not g.template
        and len(g.owner_keys) == 1
        and g.owner_keys[0] not in owners
    )


def orphaned_isos(
    region: str,
    host: str,
    volids: Iterable[str],
    owners: Mapping[str, int],
    booted: Collection[int] = (),
) -> tuple[Orphan, ...]:
    """
    Bootstrap ISOs of machines that do not exist or have another VMID.

    An ISO of an earlier version, without cluster key, is not needed once its guest has booted.
    """
    found = []
    for volid in volids:
        match = BOOTSTRAP_ISO.search(volid)
        if match is None:
            continue
        vmid, owner = int(match[1]), f"{match[2]}-{match[3]}" if match[3] else match[2]
        if owners.get(owner) != vmid or (not match[3] and vmid in booted):
            found.append(Orphan(region, host, volid, match[2]))
    return tuple(found)


def key_of(uid: str) -> str:
    """The owner key of a UID, as tags and file names contain it."""
    return Mark(uid).key


def _delete(orphan: Orphan) -> DeleteVolume:
    storage = StorageOnHost(orphan.region, orphan.host, orphan.name.partition(":")[0])
    return DeleteVolume(storage=storage, mark=Mark(orphan.key), volid=orphan.name)
