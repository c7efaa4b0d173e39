"""
Which ISOs lie on which storage: few listings for many machines.

In: a storage as reached through a host, and the ends of our own uploads and deletions. Out: whether
a file is there. Only we make and remove these files, so what we did ourselves is known without
looking; the rest is listed, and a listing serves everybody for a minute.
"""

from dataclasses import dataclass, field

from moxwell.clock import Clock
from moxwell.pve.regions import Regions
from moxwell.pve.steps import Shelf
from moxwell.pve.tasks import Ended
from moxwell.pve.values import Upid

FRESH_SECONDS = 60.0


@dataclass(slots=True)
class _Listing:
    at: float
    volids: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)


class Shelves:
    """The ISOs of all regions, as listed and changed lately."""

    def __init__(self, regions: Regions, clock: Clock) -> None:
        self._regions, self._clock = regions, clock
        self._lists: dict[Shelf, _Listing] = {}
        self._expected: dict[Upid, tuple[Shelf, str, bool]] = {}

    async def holds(self, shelf: Shelf, volid: str) -> bool:
        """Is the file there?"""
        known = self._lists.get(shelf)
        if known is not None and volid in known.volids:
            return True
        if known is not None and volid in known.removed:
            return False
        return volid in (await self._fresh(shelf)).volids

    async def names(self, shelf: Shelf) -> frozenset[str]:
        """All ISOs of a storage."""
        return frozenset((await self._fresh(shelf)).volids)

    def expect(self, upid: Upid | None, shelf: Shelf, volid: str, *, there: bool) -> None:
        """We sent or deleted a file; believed when its task ends well, or at once without one."""
        if upid is None:
            self._learn(shelf, volid, there)
        else:
            self._expected[upid] = (shelf, volid, there)

    def heard(self, ended: Ended) -> None:
        """A task ended."""
        expected = self._expected.pop(ended.upid, None)
        if expected is None:
            return
        shelf, volid, there = expected
        if ended.ok:
            self._learn(shelf, volid, there)
        else:
            self._lists.pop(shelf, None)

    def _learn(self, shelf: Shelf, volid: str, there: bool) -> None:
        known = self._lists.get(shelf)
        if known is None:
            return
        (known.volids.add if there else known.volids.discard)(volid)
        (known.removed.discard if there else known.removed.add)(volid)

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
