"""
Which ISOs lie on which storage: one listing for many machines.

In: a storage as reached through a host. Out: whether a file is there. Only we make and remove these
files, so a file that was seen stays seen until we delete it; one that was not seen is looked for
again, but no storage is listed more often than every other second.
"""

from dataclasses import dataclass, field

from moxwell.clock import Clock
from moxwell.pve.regions import Regions
from moxwell.pve.steps import Shelf

FRESH_SECONDS = 2.0


@dataclass(slots=True)
class _Listing:
    at: float
    volids: set[str] = field(default_factory=set)


class Shelves:
    """The ISOs of all regions, as listed lately."""

    def __init__(self, regions: Regions, clock: Clock) -> None:
        self._regions, self._clock = regions, clock
        self._lists: dict[Shelf, _Listing] = {}

    async def holds(self, shelf: Shelf, volid: str, *, sure_it_stays: bool = True) -> bool:
        """Is the file there? ``sure_it_stays`` False where it may just have been deleted."""
        known = self._lists.get(shelf)
        if known is not None and sure_it_stays and volid in known.volids:
            return True
        return volid in (await self._fresh(shelf)).volids

    async def names(self, shelf: Shelf) -> frozenset[str]:
        """All ISOs of a storage."""
        return frozenset((await self._fresh(shelf)).volids)

    async def _fresh(self, shelf: Shelf) -> _Listing:
        now = self._clock.monotonic()
        known = self._lists.get(shelf)
        if known is not None and now - known.at < FRESH_SECONDS:
            return known
        pve = self._regions[shelf.region].pve
        volumes = await pve.storage.content(shelf.host, shelf.storage, content="iso")
        made = _Listing(self._clock.monotonic(), {v.volid for v in volumes})
        self._lists[shelf] = made
        return made
