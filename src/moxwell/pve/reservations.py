"""
VMIDs and capacity that a controller has assigned and the inventory does not show yet. In memory.

Between the decision for a VMID and host and the watch event of the written claim, concurrent passes
must not choose the same. Nothing is persisted: a written claim is in the Kubernetes API, and one
that was not written has no effect.
"""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reservation:
    """A VMID on a host with the capacity it uses."""

    owner: str  # UID of the object
    region: str
    vmid: int
    host: str
    cpus: int = 0
    memory_bytes: int = 0
    storage: str = ""
    disk_bytes: int = 0
    group: str = ""
    zone: str = ""


class Reservations:
    """The open reservations of this process."""

    def __init__(self) -> None:
        self._open: dict[str, Reservation] = {}

    def add(self, reservation: Reservation) -> None:
        """Add a reservation; it replaces an earlier one of the same owner."""
        self._open[reservation.owner] = reservation

    def remove(self, owner: str) -> None:
        """Remove a reservation that has become visible or is obsolete."""
        self._open.pop(owner, None)

    def open(self, *, excluding: Collection[str] = ()) -> tuple[Reservation, ...]:
        """Return the open reservations, without those of some owners."""
        return tuple(p for p in self._open.values() if p.owner not in excluding)

    def vmids(self, region: str, *, excluding: Collection[str] = ()) -> frozenset[int]:
        """Return the reserved VMIDs of a region, without those of some owners."""
        found = self.open(excluding=excluding)
        return frozenset(p.vmid for p in found if p.region == region)
