"""
Which ISO files exist on which Proxmox storage, in memory: one listing serves many machines.

``see`` reads it; the ends of upload and delete tasks update it. Only Moxwell writes these files, so
the result of its own tasks is known without a listing. Other listings are reused for a minute.
"""

from dataclasses import dataclass, field

from moxwell.clock import Clock
from moxwell.pve.regions import Regions
from moxwell.pve.steps import StorageOnHost
from moxwell.pve.tasks import TaskEnded
from moxwell.pve.values import Upid

FRESH_SECONDS = 60.0


@dataclass(slots=True)
class _Listing:
    at: float
    volids: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)


class IsoCache:
    """The ISO files of all regions, as listed and changed recently."""

    def __init__(self, regions: Regions, clock: Clock) -> None:
        self._regions, self._clock = regions, clock
        self._listings: dict[StorageOnHost, _Listing] = {}
        self._expected: dict[Upid, tuple[StorageOnHost, str, bool]] = {}

    async def exists(self, storage: StorageOnHost, volid: str) -> bool:
        """Whether the file exists on the storage."""
        known = self._listings.get(storage)
        if known is not None and volid in known.volids:
            return True
        if known is not None and volid in known.removed:
            return False
        return volid in (await self._fresh(storage)).volids

    async def list(self, storage: StorageOnHost) -> frozenset[str]:
        """All ISO files of a storage."""
        return frozenset((await self._fresh(storage)).volids)

    def expect(
        self, upid: Upid | None, storage: StorageOnHost, volid: str, *, exists: bool
    ) -> None:
        """Record an upload or deletion; it takes effect when its task succeeds, or now if None."""
        if upid is None:
            self._update(storage, volid, exists)
        else:
            self._expected[upid] = (storage, volid, exists)

    def task_ended(self, ended: TaskEnded) -> None:
        """Apply the expected result of a task; after a failure the storage is listed again."""
        expected = self._expected.pop(ended.upid, None)
        if expected is None:
            return
        storage, volid, exists = expected
        if ended.ok:
            self._update(storage, volid, exists)
        else:
            self._listings.pop(storage, None)

    def _update(self, storage: StorageOnHost, volid: str, exists: bool) -> None:
        known = self._listings.get(storage)
        if known is None:
            return
        (known.volids.add if exists else known.volids.discard)(volid)
        (known.removed.discard if exists else known.removed.add)(volid)

    async def _fresh(self, storage: StorageOnHost) -> _Listing:
        now = self._clock.monotonic()
        known = self._listings.get(storage)
        if known is not None and now - known.at < FRESH_SECONDS:
            return known
        reader = self._regions[storage.region].reader
        volumes = await reader.storage.content(storage.host, storage.storage, content="iso")
        listing = _Listing(self._clock.monotonic(), {v.volid for v in volumes})
        self._listings[storage] = listing
        return listing
