"""
The work to do, by key: watched changes and timers go in, one key for one worker comes out.

Level-triggered: a key is on the queue once, however often it was added, and a key that is added
while a worker has it comes back when that worker is done. So no change is lost and no key is ever
in two workers. Every key belongs to a share (a region, as a plain string). Each share has its own
``per_share`` workers and shares take turns; a region whose passes all hang fills its own places and
nobody else's. There is no limit over all shares, for that limit is what starvation is made of.

Within a share the higher priority goes first, but every eighth time the oldest goes, so a flood of
important keys delays the others and never stops them. A timer (``add_after``) keeps the earliest
time asked for and is dropped when the key is handed out: the pass sees everything, and asks again.

A share whose ``gate`` is shut (another replica has it) keeps its keys until the gate opens.
"""

import asyncio
import heapq
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from moxwell.clock import Clock
from moxwell.runtime.backoff import Backoff
from moxwell.runtime.key import Key

OLDEST_EVERY = 8
LOW, NORMAL, HIGH = -100, 0, 100


@dataclass(frozen=True, slots=True)
class Item:
    """A key in somebody's hands; give it back with ``done``."""

    key: Key
    share: str
    priority: int
    waited: float  # seconds between being ready and being handed out


@dataclass(frozen=True, slots=True)
class Statistics:
    """How much there is to do, now."""

    ready: int
    running: int
    timed: int
    ready_by_share: dict[str, int]


@dataclass(slots=True)
class _Ready:
    share: str
    priority: int
    since: float
    number: int


@dataclass(slots=True)
class _Lane:
    """One share's keys, by priority and by age; stale entries are skipped when met."""

    by_priority: list[tuple[int, int, Key]] = field(default_factory=list)
    by_age: deque[tuple[int, Key]] = field(default_factory=deque)
    running: int = 0
    ready: int = 0
    picked: int = 0


class Watcher:
    """Hears what happens on a queue; the metrics are one. Does nothing by itself."""

    def added(self, priority: int) -> None:
        """A key became ready that was not."""

    def handed_out(self, item: Item) -> None:
        """A worker has it."""

    def done(self, item: Item, seconds: float) -> None:
        """The worker gave it back after that long."""

    def retried(self) -> None:
        """A key failed and will be tried again."""


def always(share: str) -> bool:
    """The gate of a queue that has all shares to itself."""
    return True


class Queue:
    """Keys that are ready, keys that wait for a time, keys in hands."""

    def __init__(
        self,
        clock: Clock,
        backoff: Backoff,
        *,
        per_share: int = 4,
        gate: Callable[[str], bool] = always,
        watcher: Watcher | None = None,
    ) -> None:
        self._clock, self._backoff, self._gate = clock, backoff, gate
        self.per_share = per_share
        self._watcher = watcher or Watcher()
        self._ready: dict[Key, _Ready] = {}
        self._running: dict[Key, float] = {}
        self._again: dict[Key, tuple[str, int]] = {}  # added while running
        self._timers: list[tuple[float, int, Key]] = []
        self._timed: dict[Key, tuple[float, int, str, int]] = {}  # at, number, share, priority
        self._lanes: dict[str, _Lane] = {}
        self._turns: deque[str] = deque()
        self._number = 0
        self._wake = asyncio.Event()
        self._shut = False

    def add(self, key: Key, *, share: str = "", priority: int = NORMAL) -> None:
        """``key`` needs a look; once is enough however often this is called."""
        if key in self._running:
            old = self._again.get(key)
            self._again[key] = (share, priority if old is None else max(priority, old[1]))
            return
        ready = self._ready.get(key)
        if ready is not None and ready.share == share and ready.priority >= priority:
            return
        self._put(key, share, priority, ready)
        self._wake.set()

    def add_after(
        self, key: Key, seconds: float, *, share: str = "", priority: int = NORMAL
    ) -> None:
        """``key`` needs a look in ``seconds``, or sooner if something else asks for it."""
        if seconds <= 0:
            self.add(key, share=share, priority=priority)
            return
        at = self._clock.monotonic() + seconds
        known = self._timed.get(key)
        if known is not None and known[0] <= at:
            return
        self._number += 1
        self._timed[key] = (at, self._number, share, priority)
        heapq.heappush(self._timers, (at, self._number, key))
        if len(self._timers) > 2 * len(self._timed) + 64:
            self._trim_timers()
        self._wake.set()

    def retry(self, key: Key, *, share: str = "", priority: int = NORMAL) -> float:
        """``key`` failed: try it again, each time later; the seconds until then."""
        seconds = self._backoff.failed(key, share)
        self._watcher.retried()
        self.add_after(key, seconds, share=share, priority=priority)
        return seconds

    def forget(self, key: Key) -> None:
        """``key`` went well: its next failure is its first."""
        self._backoff.forget(key)

    def failures(self, key: Key) -> int:
        """How often ``key`` failed in a row."""
        return self._backoff.failures(key)

    async def get(self) -> Item | None:
        """The next key, when there is one to hand out; None once the queue is shut."""
        while not self._shut:
            self._promote()
            item = self._pick()
            if item is not None:
                self._watcher.handed_out(item)
                return item
            await self._wait()
        return None

    def done(self, item: Item) -> None:
        """The worker is finished with it; if it was added meanwhile it is ready again."""
        started = self._running.pop(item.key)
        self._lanes[item.share].running -= 1
        self._watcher.done(item, self._clock.monotonic() - started)
        again = self._again.pop(item.key, None)
        if again is not None:
            self.add(item.key, share=again[0], priority=again[1])
        self._wake.set()

    def wake(self) -> None:
        """A gate has changed: look again."""
        self._wake.set()

    def shut(self) -> None:
        """Hand out nothing more; what is in hands may still be given back."""
        self._shut = True
        self._wake.set()

    def statistics(self) -> Statistics:
        """How much there is to do, now."""
        by_share = {share: lane.ready for share, lane in self._lanes.items()}
        return Statistics(len(self._ready), len(self._running), len(self._timed), by_share)

    def ready_by_priority(self) -> dict[int, int]:
        """How many keys are ready, by priority; the named priorities are always there."""
        named = Counter({LOW: 0, NORMAL: 0, HIGH: 0})
        named.update(ready.priority for ready in self._ready.values())
        return dict(named)

    def running_seconds(self) -> list[float]:
        """For each key in hands: since how long."""
        now = self._clock.monotonic()
        return [now - started for started in self._running.values()]

    def _put(self, key: Key, share: str, priority: int, old: _Ready | None) -> None:
        since = self._clock.monotonic()
        if old is not None:  # moved to another share, or raised: it keeps its age
            priority, since = max(priority, old.priority), old.since
            self._lanes[old.share].ready -= 1
        else:
            self._watcher.added(priority)
        lane = self._lane(share)
        lane.ready += 1
        self._number += 1
        self._ready[key] = _Ready(share, priority, since, self._number)
        heapq.heappush(lane.by_priority, (-priority, self._number, key))
        lane.by_age.append((self._number, key))

    def _lane(self, share: str) -> _Lane:
        lane = self._lanes.get(share)
        if lane is None:
            lane = self._lanes[share] = _Lane()
            self._turns.append(share)
        return lane

    def _promote(self) -> None:
        """Timers that are due become ready keys."""
        now = self._clock.monotonic()
        while self._timers and self._timers[0][0] <= now:
            _, number, key = heapq.heappop(self._timers)
            known = self._timed.get(key)
            if known is not None and known[1] == number:
                del self._timed[key]
                self.add(key, share=known[2], priority=known[3])

    def _pick(self) -> Item | None:
        for _ in range(len(self._turns)):
            share = self._turns[0]
            self._turns.rotate(-1)
            lane = self._lanes[share]
            if lane.ready and lane.running < self.per_share and self._gate(share):
                return self._hand_out(share, lane)
        return None

    def _hand_out(self, share: str, lane: _Lane) -> Item:
        key = self._next_key(lane)
        ready = self._ready.pop(key)
        now = self._clock.monotonic()
        self._running[key] = now
        self._timed.pop(key, None)
        lane.ready -= 1
        lane.running += 1
        return Item(key, share, ready.priority, now - ready.since)

    def _next_key(self, lane: _Lane) -> Key:
        lane.picked += 1
        oldest = lane.picked % OLDEST_EVERY == 0
        while True:
            if oldest:
                number, key = lane.by_age.popleft()
            else:
                _, number, key = heapq.heappop(lane.by_priority)
            ready = self._ready.get(key)
            if ready is not None and ready.number == number:
                self._trim(lane)
                return key

    def _trim(self, lane: _Lane) -> None:
        """Each key leaves one of the two orders stale; keep the other from growing."""
        if len(lane.by_age) > 2 * lane.ready + 64:
            lane.by_age = deque(e for e in lane.by_age if self._is_fresh(*e))
        if len(lane.by_priority) > 2 * lane.ready + 64:
            lane.by_priority = [e for e in lane.by_priority if self._is_fresh(e[1], e[2])]
            heapq.heapify(lane.by_priority)

    def _trim_timers(self) -> None:
        fresh = {known[1] for known in self._timed.values()}
        self._timers = [e for e in self._timers if e[1] in fresh]
        heapq.heapify(self._timers)

    def _is_fresh(self, number: int, key: Key) -> bool:
        ready = self._ready.get(key)
        return ready is not None and ready.number == number

    async def _wait(self) -> None:
        self._wake.clear()
        seconds = self._timers[0][0] - self._clock.monotonic() if self._timers else None
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return
