"""
The work queue: keys with deduplication, delays, priorities and fair shards.

A key is in the queue once, however often it is added; a key that is added while a worker processes
it becomes ready again when the worker is done. So no change is lost and no key is processed twice
at a time. Every key belongs to a shard (a region). Each shard has ``per_shard`` workers and shards
take turns, so a region whose passes hang blocks only its own workers. There is no global limit.

Within a shard the highest priority is served first, but every eighth time the oldest key, so that
low priorities are delayed and never starve. ``add_after`` keeps the earliest time and is cancelled
when the key is handed out.

A shard whose ``gate`` is closed (another replica holds it) keeps its keys until the gate opens.
"""

import asyncio
import heapq
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from moxwell.clock import Clock
from moxwell.runtime.backoff import Backoff
from moxwell.runtime.key import Key

LONG_SECONDS = 0.05  # a pass that takes as long is spaced where changes may wait
LONG_SHARE = 0.1  # of the time
LONGEST_SPACE_SECONDS = 10.0
OLDEST_EVERY = 8
LOW, NORMAL, HIGH = -100, 0, 100


@dataclass(frozen=True, slots=True)
class Item:
    """A key that a worker processes; return it with ``done``."""

    key: Key
    shard: str
    priority: int
    waited: float  # seconds between ready and handed out


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """The current sizes of the queue."""

    ready: int
    running: int
    timed: int
    ready_by_share: dict[str, int]
    stored_timers: int  # outdated ones included
    stored_entries: int  # of all shards, outdated ones included


@dataclass(slots=True)
class _Ready:
    shard: str
    priority: int
    since: float
    number: int


@dataclass(slots=True)
class _Lane:
    """The ready keys of one shard by priority and age; stale entries are skipped."""

    by_priority: list[tuple[int, int, Key]] = field(default_factory=list)
    by_age: deque[tuple[int, Key]] = field(default_factory=deque)
    running: int = 0
    ready: int = 0
    picked: int = 0


class QueueObserver:
    """Observes a queue, for metrics. The base class does nothing."""

    def added(self, priority: int) -> None:
        """A key became ready."""

    def handed_out(self, item: Item) -> None:
        """A worker took the key."""

    def done(self, item: Item, seconds: float) -> None:
        """The worker returned the key after that time."""

    def retried(self) -> None:
        """A key failed and will be retried."""


def always(shard: str) -> bool:
    """The gate that is always open."""
    return True


class Queue:
    """Ready keys, delayed keys and keys in process."""

    def __init__(
        self,
        clock: Clock,
        backoff: Backoff,
        *,
        per_shard: int = 4,
        gate: Callable[[str], bool] = always,
        watcher: QueueObserver | None = None,
    ) -> None:
        self._clock, self._backoff = clock, backoff
        self.per_shard, self.gate = per_shard, gate
        self._watcher = watcher or QueueObserver()
        self._ready: dict[Key, _Ready] = {}
        self._running: dict[Key, float] = {}
        self._again: dict[Key, tuple[str, int]] = {}  # added while in process
        self._timers: list[tuple[float, int, Key]] = []
        self._timed: dict[Key, tuple[float, int, str, int]] = {}  # due, sequence, shard, priority
        self._lanes: dict[str, _Lane] = {}
        self._long: dict[Key, float] = {}  # keys whose last pass took long, and how long
        self._turns: deque[str] = deque()
        self._number = 0
        self._wake = asyncio.Event()
        self._shut = False

    def add(self, key: Key, *, shard: str = "", priority: int = NORMAL) -> None:
        """Add a key; repeated calls have no further effect."""
        if key in self._running:
            old = self._again.get(key)
            self._again[key] = (shard, priority if old is None else max(priority, old[1]))
            return
        ready = self._ready.get(key)
        if ready is not None and ready.shard == shard and ready.priority >= priority:
            return
        self._put(key, shard, priority, ready)
        self._wake.set()

    def add_after(
        self, key: Key, seconds: float, *, shard: str = "", priority: int = NORMAL
    ) -> None:
        """Add a key in ``seconds``, or earlier if something else adds it."""
        if seconds <= 0:
            self.add(key, shard=shard, priority=priority)
            return
        at = self._clock.monotonic() + seconds
        known = self._timed.get(key)
        if known is not None and known[0] <= at:
            return
        self._number += 1
        self._timed[key] = (at, self._number, shard, priority)
        heapq.heappush(self._timers, (at, self._number, key))
        if len(self._timers) > 2 * len(self._timed) + 64:
            self._trim_timers()
        self._wake.set()

    def spaced(self, key: Key, seconds: float) -> float:
        """A delay, longer if passes of the key take long; what need not wait is not delayed."""
        took = self._long.get(key, 0.0) if seconds > 0 else 0.0
        return max(seconds, min(took / LONG_SHARE, LONGEST_SPACE_SECONDS))

    def retry(self, key: Key, *, shard: str = "", priority: int = NORMAL) -> float:
        """The key failed: add it again with backoff; returns the delay."""
        seconds = self._backoff.failed(key, shard)
        self._watcher.retried()
        self.add_after(key, seconds, shard=shard, priority=priority)
        return seconds

    def forget(self, key: Key) -> None:
        """The key succeeded: reset its failure count."""
        self._backoff.forget(key)

    def failures(self, key: Key) -> int:
        """The number of consecutive failures of ``key``."""
        return self._backoff.failures(key)

    async def get(self) -> Item | None:
        """The next key; None once the queue is shut down."""
        while not self._shut:
            self._promote()
            item = self._pick()
            if item is not None:
                self._watcher.handed_out(item)
                return item
            await self._wait()
        return None

    def done(self, item: Item) -> None:
        """The worker is done; a key that was added meanwhile is ready again."""
        seconds = self._clock.monotonic() - self._running.pop(item.key)
        self._lanes[item.shard].running -= 1
        self._watcher.done(item, seconds)
        if seconds >= LONG_SECONDS:
            self._long[item.key] = seconds
        else:
            self._long.pop(item.key, None)
        again = self._again.pop(item.key, None)
        if again is not None:
            self.add(item.key, shard=again[0], priority=again[1])
        self._wake.set()

    def wake(self) -> None:
        """A gate changed: check the shards again."""
        self._wake.set()

    def shut(self) -> None:
        """Hand out no more keys; keys in process may still be returned."""
        self._shut = True
        self._wake.set()

    def statistics(self) -> QueueStatistics:
        """The current sizes of the queue."""
        by_share = {shard: lane.ready for shard, lane in self._lanes.items()}
        return QueueStatistics(
            ready=len(self._ready),
            running=len(self._running),
            timed=len(self._timed),
            ready_by_share=by_share,
            stored_timers=len(self._timers),
            stored_entries=sum(len(lane.by_age) for lane in self._lanes.values()),
        )

    def ready_by_priority(self) -> dict[int, int]:
        """The number of ready keys by priority; every named priority is included."""
        named = Counter({LOW: 0, NORMAL: 0, HIGH: 0})
        named.update(ready.priority for ready in self._ready.values())
        return dict(named)

    def running_seconds(self) -> list[float]:
        """The seconds that each key has been in process."""
        now = self._clock.monotonic()
        return [now - started for started in self._running.values()]

    def _put(self, key: Key, shard: str, priority: int, old: _Ready | None) -> None:
        since = self._clock.monotonic()
        if old is not None:  # moved to another shard or raised in priority: it keeps its age
            priority, since = max(priority, old.priority), old.since
            self._lanes[old.shard].ready -= 1
        else:
            self._watcher.added(priority)
        lane = self._lane(shard)
        lane.ready += 1
        self._number += 1
        self._ready[key] = _Ready(shard, priority, since, self._number)
        heapq.heappush(lane.by_priority, (-priority, self._number, key))
        lane.by_age.append((self._number, key))

    def _lane(self, shard: str) -> _Lane:
        lane = self._lanes.get(shard)
        if lane is None:
            lane = self._lanes[shard] = _Lane()
            self._turns.append(shard)
        return lane

    def _promote(self) -> None:
        """Make the keys ready whose delay is over."""
        now = self._clock.monotonic()
        while self._timers and self._timers[0][0] <= now:
            _, number, key = heapq.heappop(self._timers)
            known = self._timed.get(key)
            if known is not None and known[1] == number:
                del self._timed[key]
                self.add(key, shard=known[2], priority=known[3])

    def _pick(self) -> Item | None:
        for _ in range(len(self._turns)):
            shard = self._turns[0]
            self._turns.rotate(-1)
            lane = self._lanes[shard]
            if lane.ready and lane.running < self.per_shard and self.gate(shard):
                return self._hand_out(shard, lane)
        return None

    def _hand_out(self, shard: str, lane: _Lane) -> Item:
        key = self._next_key(lane)
        ready = self._ready.pop(key)
        now = self._clock.monotonic()
        self._running[key] = now
        self._timed.pop(key, None)
        lane.ready -= 1
        lane.running += 1
        return Item(key, shard, ready.priority, now - ready.since)

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
        """Compact the order that still contains stale entries."""
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
        timer = None
        if self._timers:
            seconds = self._timers[0][0] - self._clock.monotonic()
            timer = asyncio.get_running_loop().call_later(max(seconds, 0), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()
