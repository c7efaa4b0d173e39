"""
What is in a region, from one poll for everybody.

In: ``/cluster/resources``, one request per round, quick while work is under way and slow when idle;
and what steps and reads taught since. Out: a ``View`` at any time, and an event per change.
The surprise: that list is up to ten seconds old, so for a while we know better; what was learned
wins over any list that may have been made before it.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from moxwell.clock import Clock
from moxwell.errors import MoxwellError
from moxwell.pve import errors
from moxwell.pve.client import PveReader
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
STALE_SECONDS = 12.0  # the list's own age, and a little
FORGET_FREED_SECONDS = 3600.0

Listener = Callable[[InventoryEvent], None]


@dataclass(frozen=True, slots=True)
class _Known:
    """Something learned of a guest: its fields, or (None) that it is gone."""

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
        self._listeners: list[Listener] = []
        self._busy_until = 0.0
        self._wake = asyncio.Event()
        self._first = asyncio.Event()
        self.health = InventoryHealth(pve.region, False, 0.0, "not looked at yet")
        self.uuids = UuidIndex(pve)

    # ------------------------------------------------------------------ looking

    @property
    def region(self) -> str:
        return self._pve.region

    @property
    def view(self) -> InventoryView:
        """Everything, as known now."""
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
        """VMIDs that became free lately, with the (monotonic) time of it."""
        return self._freed

    @property
    def synced(self) -> bool:
        """Was the region listed at least once?"""
        return self._first.is_set()

    def find(self, vmid: int) -> ObservedGuest | None:
        return self._view.guests.get(vmid)

    def find_by_name(self, name: str) -> tuple[ObservedGuest, ...]:
        return self._view.by_name.get(name, ())

    def find_by_owner(self, key: str) -> tuple[ObservedGuest, ...]:
        """Guests whose tags name this owner (``Mark.key``); verify before touching one."""
        return self._view.by_owner.get(key, ())

    def on_host(self, host: str) -> tuple[ObservedGuest, ...]:
        return self._view.by_host.get(host, ())

    def storage(self, host: str, name: str) -> ObservedStorage | None:
        return self._view.storages.get((host, name))

    async def find_by_uuid(self, uuid: str) -> ObservedGuest | None:
        """The guest with this SMBIOS UUID; reads the configurations it has not read yet."""
        vmid = await self.uuids.find(uuid, self._view)
        return self._view.guests.get(vmid) if vmid is not None else None

    async def is_gone(self, vmid: int) -> bool:
        """Is there no such guest? Asked freshly, and true even of guests we may not see."""
        try:
            await self._pve.cluster.nextid(vmid)
        except errors.Exists:
            return False
        return True

    # ------------------------------------------------------------------ learning

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Be told of changes; answers the way to stop that."""
        self._listeners.append(listener)
        return lambda: self.unsubscribe(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Be told no more; who never was is not told either."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def work_is_under_way(self, seconds: float = BUSY_FOR_SECONDS) -> None:
        """Poll quickly for a while."""
        self._busy_until = max(self._busy_until, self._clock.monotonic() + seconds)
        self._wake.set()

    def learn(self, vmid: int, **fields: Any) -> None:
        """What is known of a guest from its own host, or from our own work on it."""
        known = self._known.get(vmid)
        before = known.fields if known and known.fields is not None else {}
        self._known[vmid] = _Known(self._clock.monotonic(), {**before, **fields})
        self._publish()

    def learn_gone(self, vmid: int) -> None:
        """A guest was destroyed."""
        self._known[vmid] = _Known(self._clock.monotonic(), None)
        self._publish()

    # ------------------------------------------------------------------ polling

    async def run(self) -> None:
        """Poll for as long as it runs."""
        while True:
            await self.refresh()
            await self._rest()

    async def _rest(self) -> None:
        """A short pause while busy; a long one when idle, cut short when work starts."""
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
        """One round: list, correct, publish; a region that does not answer keeps its last view."""
        asked = self._clock.monotonic()
        try:
            rows = await self._pve.cluster.resources()
        except MoxwellError as error:
            self._set_health(False, str(error))
            return
        self._listed = view_of(rows)
        self._expire(asked)
        self._publish()
        self._first.set()
        self._set_health(True, "")

    async def wait_synced(self) -> None:
        """Until the region was listed once."""
        await self._first.wait()

    def _expire(self, asked: float) -> None:
        """Drop what the list has caught up with, or is too young to be wrong about."""
        for vmid, known in list(self._known.items()):
            listed = self._listed.guests.get(vmid)
            if asked - known.at >= STALE_SECONDS or _agrees(listed, known):
                del self._known[vmid]
        for vmid, at in list(self._freed.items()):
            if asked - at > FORGET_FREED_SECONDS:
                del self._freed[vmid]

    def _publish(self) -> None:
        old, self._view = self._view, _corrected(self._listed, self._known)
        for vmid in old.guests.keys() - self._view.guests.keys():
            self._freed[vmid] = self._clock.monotonic()
        for vmid in self._freed.keys() & self._view.guests.keys():
            del self._freed[vmid]
        self.uuids.forget_absent(self._view)
        if self._listeners:
            for change in differences(self.region, old, self._view):
                self._tell(change)

    def _set_health(self, reachable: bool, error: str) -> None:
        was = self.health
        since = was.since if was.reachable == reachable else self._clock.monotonic()
        self.health = InventoryHealth(self.region, reachable, since, error)
        if was.reachable != reachable:
            self._tell(self.health)

    def _tell(self, event: InventoryEvent) -> None:
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
