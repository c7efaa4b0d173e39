"""
Which ISO files exist on which Proxmox storage, in memory: one listing serves many machines.

``see`` reads it; the ends of upload and delete tasks update it. Only Moxwell writes these files, so
the result of its own tasks is known without a listing. Other listings are reused for a minute.
"""

from dataclasses import dataclass, field

from moxwell.clock import Clock
from moxwell.pve.regions import Region
from moxwell.pve.steps import StorageOnHost
from moxwell.pve.tasks import TaskEnded
from moxwell.pve.values import Upid

FRESH_SECONDS = 60.0

_Key = tuple[str, StorageOnHost]  # the key of the region, and the storage


@dataclass(frozen=True, slots=True)
class IsoChange:
    """A file that a task creates or deletes."""

    volid: str
    exists: bool


@dataclass(slots=True)
class _Listing:
    at: float
    volids: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)


class IsoCache:
    """The ISO files of all regions, as listed and changed recently."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listings: dict[_Key, _Listing] = {}
        self._expected: dict[Upid, tuple[_Key, str, bool]] = {}

    async def exists(self, region: Region, storage: StorageOnHost, volid: str) -> bool:
        """Whether the file exists on the storage."""
        known = self._listings.get((region.key, storage))
        if known is not None and volid in known.volids:
            return True
        if known is not None and volid in known.removed:
            return False
        return volid in (await self._fresh(region, storage)).volids

    async def list(self, region: Region, storage: StorageOnHost) -> frozenset[str]:
        """All ISO files of a storage."""
        return frozenset((await self._fresh(region, storage)).volids)

    def expect(
        self, upid: Upid | None, region: Region, storage: StorageOnHost, change: IsoChange
    ) -> None:
        """Record an upload or deletion; it takes effect when its task succeeds, or now if None."""
        key = (region.key, storage)
        if upid is None:
            self._update(key, change.volid, change.exists)
        else:
            self._expected[upid] = (key, change.volid, change.exists)

    def task_ended(self, ended: TaskEnded) -> None:
        """Apply the expected result of a task; after a failure the storage is listed again."""
        expected = self._expected.pop(ended.upid, None)
        if expected is None:
            return
        key, volid, exists = expected
        if ended.ok:
            self._update(key, volid, exists)
        else:
            self._listings.pop(key, None)

    def _update(self, key: _Key, volid: str, exists: bool) -> None:
        known = self._listings.get(key)
        if known is None:
            return
        (known.volids.add if exists else known.volids.discard)(volid)
        (known.removed.discard if exists else known.removed.add)(volid)

    async def _fresh(self, region: Region, storage: StorageOnHost) -> _Listing:
        now, key = self._clock.monotonic(), (region.key, storage)
        known = self._listings.get(key)
        if known is not None and now - known.at < FRESH_SECONDS:
            return known
        volumes = await region.reader.storage.content(storage.host, storage.storage, content="iso")
        listing = _Listing(self._clock.monotonic(), {v.volid for v in volumes})
        self._listings[key] = listing
        return listing
