"""
How many full clones run at once: limited per host and per storage, so that they do not time each
other out.

Proxmox copies a disk on the template's host and locks the target storage while it allocates. Clones
that this process started are counted until their task ends. After a restart, guests with the lock
``clone`` count: on their host, and on the storage that their machine has claimed. Clones of others
count on their host only. Linked clones copy nothing and are not limited.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from moxwell.controllers.infra.policy import FULL_CLONES
from moxwell.pve.guests import CLONING
from moxwell.pve.regions import Region


@dataclass(frozen=True, slots=True)
class CloneTarget:
    """Where a clone runs and where it copies to; an empty storage is that of the template."""

    host: str
    storage: str = ""
    full: bool = True


ClaimedClone = tuple[Hashable, CloneTarget]  # the owner of a clone, and where it runs
FindClaim = Callable[[str, int], ClaimedClone | None]  # by region and VMID


class CloneSlots:
    """The full clones that run; ``find_claim`` tells which machine has claimed a VMID."""

    def __init__(
        self, limit: int = FULL_CLONES, find_claim: FindClaim = lambda region, vmid: None
    ) -> None:
        self._limit, self._find_claim = limit, find_claim
        self._running: dict[Hashable, tuple[str, CloneTarget]] = {}  # with the key of the region

    def are_taken(self, owner: Hashable, region: Region, clone: CloneTarget) -> bool:
        """Whether a clone of this owner has to wait."""
        if not clone.full or owner in self._running:
            return False
        others = [target for key, target in self._running.values() if key == region.key]
        guests = region.inventory.view.by_host.get(clone.host, ())
        locked = sum(1 for guest in guests if guest.lock == CLONING)
        on_host = sum(1 for other in others if other.host == clone.host)
        stored = (*others, *self._unfinished(region)) if clone.storage else ()
        on_storage = sum(1 for other in stored if other.storage == clone.storage)
        return max(locked, on_host, on_storage) >= self._limit

    def _unfinished(self, region: Region) -> list[CloneTarget]:
        """The full clones of machines that an earlier run of this program started."""
        guests = region.inventory.view.guests.values()
        found = [self._find_claim(region.name, g.vmid) for g in guests if g.lock == CLONING]
        return [
            target
            for owner, target in (claimed for claimed in found if claimed is not None)
            if target.full and owner not in self._running
        ]

    def take(self, owner: Hashable, region: Region, clone: CloneTarget) -> bool:
        """Count a clone that is about to start; false if it has to wait."""
        if self.are_taken(owner, region, clone):
            return False
        if clone.full:
            self._running[owner] = (region.key, clone)
        return True

    def free(self, owner: Hashable) -> None:
        """A clone ended, or did not start."""
        self._running.pop(owner, None)
