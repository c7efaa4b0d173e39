"""
Promises: VMIDs and room that were given away but that nobody else can see yet.

In: what a controller has just claimed for an object, before its write comes back through a watch.
Out: the promises still open, so that two passes side by side never choose the same id or fill the
same host twice. Memory only: a claim that was written is in the Kubernetes API, and one that was
not has had no effect. Shared by all controllers that make guests.
"""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reservation:
    """An id on a host, and how much of it."""

    owner: str  # the UID of whoever it was promised to
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
    """The open promises of this process."""

    def __init__(self) -> None:
        self._open: dict[str, Reservation] = {}

    def promise(self, promise: Reservation) -> None:
        """Note one; a former one of the same owner is forgotten."""
        self._open[promise.owner] = promise

    def settle(self, owner: str) -> None:
        """It has become visible, or came to nothing."""
        self._open.pop(owner, None)

    def open(self, *, besides: Collection[str] = ()) -> tuple[Reservation, ...]:
        """All open promises, without those of some owners."""
        return tuple(p for p in self._open.values() if p.owner not in besides)

    def vmids(self, region: str) -> frozenset[int]:
        """The ids promised in a region."""
        return frozenset(p.vmid for p in self._open.values() if p.region == region)
