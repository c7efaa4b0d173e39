"""
Inventory of a region: one poll of ``/cluster/resources`` for all readers, as a view and events.

It polls every 3 s while work is under way and every 30 s otherwise. The list is up to ten seconds
old, so facts learned from steps and reads override every list that may be older than they are.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from moxwell.clock import Clock
from moxwell.errors import MoxwellError
from moxwell.pve import errors
from moxwell.pve.client import PveReader
from moxwell.pve.endpoints.cluster import ClusterResource
from moxwell.pve.model import (
    InventoryEvent,
    InventoryHealth,
    InventoryView,
    ObservedGuest,
    ObservedHost,
    ObservedStorage,
    differences,
    view_of,
)
from moxwell.pve.uuid_index import UuidIndex

IDLE_SECONDS = 30.0
BUSY_SECONDS = 3.0
BUSY_FOR_SECONDS = 30.0
LOST_SECONDS = 10.0
STALE_SECONDS = 12.0  # the age of the list, and a margin
FORGET_FREED_SECONDS = 3600.0
RECENT_SECONDS = 60.0  # how long an answer about an unused VMID is recent
MAX_ROWS = 30_000  # hosts, guests, storages and pools of one region

Listener = Callable[[InventoryEvent], None]


@dataclass(frozen=True, slots=True)
class _Known:
    """A fact about a guest: fields of it, or (None) that it is destroyed."""

    at: float
    fields: Mapping[str, Any] | None


class Inventory:
    """The hosts, storages and guests of one region."""

    def __init__(self, pve: PveReader, clock: Clock, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._pve = pve
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._listed = InventoryView()
        self._view = InventoryView()
        self._known: dict[int, _Known] = {}
        self._freed: dict[int, float] = {}
        self._free: dict[int, float] = {}  # VMIDs that Proxmox called unused, with the time
        self._listeners: list[Listener] = []
        self._busy_until = 0.0
        self._polled_at = 0.0  # when the request of the last list was sent
        self._wake = asyncio.Event()
        self._first = asyncio.Event()
        self.health = InventoryHealth(pve.region, False, 0.0, "not polled yet")
        self.uuids = UuidIndex(pve)

    # ------------------------------------------------------------------ reading

    @property
    def region(self) -> str:
        return self._pve.region

    @property
    def view(self) -> InventoryView:
        """Return the current view."""
        return self._view

    @property
    def hosts(self) -> Mapping[str, ObservedHost]:
        return self._view.hosts

    @property
    def storages(self) -> Mapping[tuple[str, str], ObservedStorage]:
        return self._view.storages

    @property
    def guests(self) -> Mapping[int, ObservedGuest]:
        return self._view.guests

    @property
    def freed(self) -> Mapping[int, float]:
        """VMIDs that became free recently, with the monotonic time."""
        return self._freed

    @property
    def synced(self) -> bool:
        """Report whether the region was listed at least once."""
        return self._first.is_set()

    def find(self, vmid: int) -> ObservedGuest | None:
        return self._view.guests.get(vmid)

    def find_by_name(self, name: str) -> tuple[ObservedGuest, ...]:
        return self._view.by_name.get(name, ())

    def find_by_owner(self, key: str) -> tuple[ObservedGuest, ...]:
        """
        Return guests with the tag of this owner (``Mark.key``); verify ownership before a write.
        """
        return self._view.by_owner.get(key, ())

    def on_host(self, host: str) -> tuple[ObservedGuest, ...]:
        return self._view.by_host.get(host, ())

    def storage(self, host: str, name: str) -> ObservedStorage | None:
        return self._view.storages.get((host, name))

    async def find_by_uuid(self, uuid: str) -> ObservedGuest | None:
        """
        Return the guest with this SMBIOS UUID; reads configurations that were not read before.
        """
        vmid = await self.uuids.find(uuid, self._view)
        return self._view.guests.get(vmid) if vmid is not None else None

    async def is_gone(self, vmid: int, *, recent: bool = False) -> bool:
        """
        Ask Proxmox whether a VMID is unused; correct also for guests that we may not see.

        With ``recent`` a positive answer of the last minute is enough, unless a guest with the
        VMID was listed since: for an owner that has to know only that its own guest is gone.
        """
        if recent and vmid in self._free and vmid not in self._view.guests:
            return True
        try:
            await self._pve.cluster.nextid(vmid)
        except errors.Exists:
            self._free.pop(vmid, None)
            return False
        self._free[vmid] = self._clock.monotonic()
        return True

    # ------------------------------------------------------------------ learning

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a listener for each event; returns the function that unsubscribes it."""
        self._listeners.append(listener)
        return lambda: self.unsubscribe(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Stop calling a listener."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    @property
    def listener_count(self) -> int:
        """How many listeners are subscribed."""
        return len(self._listeners)

    def poll_frequently(self, seconds: float = BUSY_FOR_SECONDS) -> None:
        """Poll at the short interval for a while."""
        self._busy_until = max(self._busy_until, self._clock.monotonic() + seconds)
        self._wake.set()

    def expect_change(self, seconds_ago: float) -> None:
        """Poll soon if the list may be older than something that happened so long ago."""
        happened = self._clock.monotonic() - seconds_ago
        if happened > self._polled_at - STALE_SECONDS:
            self.poll_frequently(BUSY_SECONDS)

    def learn(self, vmid: int, **fields: Any) -> None:
        """Add facts about a guest, from its own host or from a step."""
        known = self._known.get(vmid)
        before = known.fields if known and known.fields is not None else {}
        self._known[vmid] = _Known(self._clock.monotonic(), {**before, **fields})
        self._publish()

    def learn_destroyed(self, vmid: int) -> None:
        """Add the fact that a guest was destroyed."""
        self._known[vmid] = _Known(self._clock.monotonic(), None)
        self._publish()

    # ------------------------------------------------------------------ polling

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self.refresh()
            await self._rest()

    async def _rest(self) -> None:
        """Sleep: briefly while busy, otherwise long but interrupted when work starts."""
        if self._is_busy:
            await self._clock.sleep(BUSY_SECONDS)
            return
        self._wake.clear()
        try:
            async with asyncio.timeout(
                self._idle_seconds if self.health.reachable else LOST_SECONDS
            ):
                await self._wake.wait()
        except TimeoutError:
            return
        await self._clock.sleep(BUSY_SECONDS)

    @property
    def _is_busy(self) -> bool:
        return self._clock.monotonic() < self._busy_until

    async def refresh(self) -> None:
        """Poll once and publish; a region that does not answer keeps its last view."""
        polled_at = self._clock.monotonic()
        try:
            rows = await self._rows()
        except MoxwellError as error:
            self.failed(str(error), error.reason)
            return
        self._listed, self._polled_at = view_of(rows), polled_at
        self._expire(polled_at)
        self._publish()
        self._first.set()
        self._set_health(True, "")

    async def _rows(self) -> Sequence[ClusterResource]:
        rows = await self._pve.cluster.resources()
        if len(rows) > MAX_ROWS:
            text = f"{len(rows)} objects in /cluster/resources: more than {MAX_ROWS}"
            raise errors.InvalidAnswer(text, where=f"region {self.region}")
        return rows

    def failed(self, error: str, reason: str) -> None:
        """Report that the region could not be read; its last view stays."""
        self._set_health(False, error.removeprefix(f"region {self.region}: "), reason)

    async def wait_synced(self) -> None:
        """Wait until the region was listed once."""
        await self._first.wait()

    def _expire(self, polled_at: float) -> None:
        """Drop facts that the list confirms or that are older than the list can be."""
        for vmid, known in list(self._known.items()):
            listed = self._listed.guests.get(vmid)
            if polled_at - known.at >= STALE_SECONDS or _agrees(listed, known):
                del self._known[vmid]
        for vmid, at in list(self._freed.items()):
            if polled_at - at > FORGET_FREED_SECONDS:
                del self._freed[vmid]
        for vmid, at in list(self._free.items()):
            if polled_at - at > RECENT_SECONDS or vmid in self._listed.guests:
                del self._free[vmid]

    def _publish(self) -> None:
        old, self._view = self._view, _corrected(self._listed, self._known)
        for vmid in old.guests.keys() - self._view.guests.keys():
            self._freed[vmid] = self._clock.monotonic()
        for vmid in self._freed.keys() & self._view.guests.keys():
            del self._freed[vmid]
        self.uuids.forget_absent(self._view)
        if self._listeners:
            for change in differences(self.region, old, self._view):
                self._notify(change)

    def _set_health(self, reachable: bool, error: str, reason: str = "") -> None:
        was = self.health
        since = was.since if was.reachable == reachable else self._clock.monotonic()
        self.health = InventoryHealth(self.region, reachable, since, error, reason)
        if was.reachable != reachable:
            self._notify(self.health)

    def _notify(self, event: InventoryEvent) -> None:
        for listener in tuple(self._listeners):
            listener(event)


def _agrees(listed: ObservedGuest | None, known: _Known) -> bool:
    if known.fields is None:
        return listed is None
    return listed is not None and all(
        getattr(listed, name) == value for name, value in known.fields.items()
    )


def _corrected(listed: InventoryView, known: Mapping[int, _Known]) -> InventoryView:
    if not known:
        return listed
    guests = dict(listed.guests)
    for vmid, fact in known.items():
        if fact.fields is None:
            guests.pop(vmid, None)
        elif vmid in guests:
            guests[vmid] = replace(guests[vmid], **fact.fields)
        elif "host" in fact.fields:
            guests[vmid] = ObservedGuest(vmid=vmid, **fact.fields)
    return InventoryView(listed.hosts, listed.storages, guests, listed.pools)
