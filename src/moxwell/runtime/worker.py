"""
Runs the passes of one controller.

A pass takes a key from the queue, fetches the object (from the cache, or live when the cache does
not have our last write yet), adds the finalizer, calls see, plan, act and describe, and writes the
status if it changed. An error becomes a condition, an event, a count and a retry. A pass is one
task and may be cancelled at any time, because every pass starts from the observed state.

This is the only module that catches every exception: a broken controller must not stop others.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog

from moxwell.clock import Clock
from moxwell.errors import MoxwellError
from moxwell.kube.client import Kube
from moxwell.kube.errors import WriteConflict
from moxwell.runtime import failure as failures
from moxwell.runtime import fence, finalizer, pause
from moxwell.runtime.cache import Cache
from moxwell.runtime.events import Recorder
from moxwell.runtime.failure import Failure
from moxwell.runtime.key import Key
from moxwell.runtime.metrics import ControllerMetrics
from moxwell.runtime.move import Done, Wait, is_final
from moxwell.runtime.objects import as_tree, key_of, meta_of, version_of
from moxwell.runtime.own_writes import OwnWrites
from moxwell.runtime.queue import LOW, NORMAL, Item, Queue
from moxwell.runtime.reconciler import Controller, Note
from moxwell.runtime.status import StatusWriter, explicit, is_urgent
from moxwell.runtime.status_deferral import StatusDeferral
from moxwell.runtime.watches import Watch

QUIET_FAILURES = 3  # conflicts below this count are not reported
LOOP_CAP_SECONDS = 60.0
CONTEXT = ("controller", "key", "pass")

Json = dict[str, Any]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Intervals of passes without an event."""

    resync_seconds: float
    terminal_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _PassResult:
    """What the four parts of a reconciler returned."""

    status: Any
    requeue_after: float | None
    done: bool
    events: tuple[Note, ...]
    written: Any  # the reconciled object, if act wrote it


class Worker:
    """Runs one controller."""

    def __init__(
        self,
        controller: Controller,
        *,
        kube: Kube,
        clock: Clock,
        cache: Cache[Any],
        queue: Queue,
        metrics: ControllerMetrics,
        recorder: Recorder,
        times: Times,
        rng: random.Random,
        clusters: Cache[Any] | None = None,
    ) -> None:
        self.controller, self.queue = controller, queue
        self._kube, self._clock, self._cache = kube, clock, cache
        self._metrics, self._recorder, self._times, self._rng = metrics, recorder, times, rng
        self._clusters = clusters
        self._kind, self._finalizer = controller.reconciler.kind, controller.reconciler.finalizer
        self._status = StatusWriter(kube, clock)
        self._own_writes = OwnWrites()
        self._form = failures.condition_type(self._kind)
        self._condition = failures.failure_condition(self._kind, controller.condition)
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._deferral = StatusDeferral(clock)

    # ---- events that enqueue keys

    def subscribe(self) -> None:
        """Enqueue the key of every changed object of our kind."""
        self._cache.subscribe(self._changed)

    def watch(self, watch: Watch, cache: Cache[Any]) -> None:
        """Enqueue the keys that a change of another kind maps to."""

        def changed(old: Any, new: Any, listed: bool) -> None:
            try:
                keys = watch.wakes(old, new)
            except Exception as error:  # noqa: BLE001 - a broken map must not stop a cache
                self._broke("watch broken", error, kind=cache.resource.kind)
                return
            for key in keys:
                self._add(key, LOW if listed else NORMAL, watch.delay)

        cache.subscribe(changed)

    def wake(self, key: Key) -> None:
        """Enqueue a key for a reason outside Kubernetes."""
        self._add(key, NORMAL)

    def wake_shard(self, shard: str | None) -> None:
        """Enqueue every object of a shard (None: of all), which this replica has just gained."""
        for obj in self._cache.list():
            its = self._shard(obj)
            if shard is None or its == shard:
                self.queue.add(key_of(obj), shard=its, priority=LOW)

    def _add(self, key: Key, priority: int, delay: float = 0.0) -> None:
        obj = self._cache.find(key)
        shard = self._shard(obj) if obj is not None else ""
        self.queue.add_after(key, self.queue.spaced(key, delay), shard=shard, priority=priority)

    def _changed(self, old: Any, new: Any, listed: bool) -> None:
        obj = old if new is None else new
        key = key_of(obj)
        if new is None or self._own_writes.is_foreign(key, version_of(new)):
            self.queue.add(key, shard=self._shard(obj), priority=LOW if listed else NORMAL)

    def _shard(self, obj: Any) -> str:
        try:
            return self.controller.shard(obj)
        except Exception as error:  # noqa: BLE001 - asked from inside a cache
            self._broke("shard broken", error, key=str(key_of(obj)))
            return ""

    def _broke(self, event: str, error: Exception, **more: Any) -> None:
        self._metrics.broke()
        log.error(event, controller=self.controller.name, exc_info=error, **more)

    def sample(self) -> None:
        """Set the gauges; called at each scrape."""
        self._metrics.sample(self.queue)

    # ---- running

    async def run(self) -> None:
        """
        Start a pass for each key until the queue is shut down; then wait for the running ones.
        """
        async with asyncio.TaskGroup() as group:
            while (item := await self.queue.get()) is not None:
                task = group.create_task(self.handle(item))
                self._tasks[task] = item.shard
                task.add_done_callback(self._tasks.pop)

    async def abandon(self, shard: str | None) -> None:
        """Cancel the passes of a shard (None: all) and wait until they have stopped."""
        ours = [t for t, its in self._tasks.items() if shard is None or its == shard]
        for task in ours:
            task.cancel()
        if ours:
            await asyncio.wait(ours)

    async def handle(self, item: Item) -> None:
        """One pass; raises nothing but cancellation."""
        fence.enter(item.shard)
        structlog.contextvars.bind_contextvars(
            **{"controller": self.controller.name, "key": str(item.key), "pass": self._pass_id()}
        )
        started, result = self._clock.monotonic(), "cancelled"
        self._own_writes.begin(item.key)
        try:
            result = await self._attempt(item)
        except Exception as error:  # noqa: BLE001 - reporting a failure may fail too
            result = "error"
            self._broke("pass broken", error)
            self.queue.retry(item.key, shard=item.shard)
        finally:
            foreign = self._own_writes.end(item.key)
            if foreign or result == "cancelled":
                self.queue.add(item.key, shard=item.shard)
            self.queue.done(item)
            structlog.contextvars.unbind_contextvars(*CONTEXT)
        self._metrics.passed(result, self._clock.monotonic() - started)

    async def _attempt(self, item: Item) -> str:
        obj = None
        try:
            obj = await self._fetch(item.key)
            if obj is None:
                self.queue.forget(item.key)
                return "success"
            if (shard := self._shard(obj)) != item.shard:  # the object moved to another shard
                self.queue.add(item.key, shard=shard)
                return "success"
            try:
                result = await self._pass(obj)
            except WriteConflict as error:
                obj = await self._live_object(item.key, error)
                result = await self._pass(obj) if obj is not None else None
        except Exception as error:  # noqa: BLE001 - the one place; see the module's first lines
            return await self._failed(item, obj, error)
        self.queue.forget(item.key)
        return self._schedule(item, result)

    async def _fetch(self, key: Key) -> Any:
        """The object from the cache, or live if the cache is stale."""
        obj = self._cache.find(key)
        if self._own_writes.is_stale(key, version_of(obj) if obj is not None else "0"):
            obj = await self._kube.find(self._kind, key.name, key.namespace)
        if obj is None:
            self._own_writes.forget(key)
            self._deferral.forget(key)
        return obj

    async def _live_object(self, key: Key, error: WriteConflict) -> Any:
        """
        The live object after a write conflict.

        The cache did not have the other write yet. The pass starts again; a second conflict fails
        it.
        """
        log.debug("pass begun again", reason=error.reason, error=str(error))
        return await self._kube.find(self._kind, key.name, key.namespace)

    async def _pass(self, obj: Any) -> _PassResult | None:
        """The whole pass of one object; None if no further pass is needed."""
        if self.controller.needs is not None and not self.controller.needs(obj):
            return None
        if self.controller.pausable and (why := pause.find_pause(obj, self._clusters)):
            await self._write(obj, None, why)
            return None
        deleting = meta_of(obj).deletion_timestamp is not None
        if deleting and not self._sees_deleting(obj):
            return None
        if not deleting and self._finalizer and not finalizer.has(obj, self._finalizer):
            obj = await finalizer.add(self._kube, self._kind, obj, self._finalizer)
            self._own_writes.wrote(key_of(obj), version_of(obj))
        result = await self._reconcile(obj)
        for note in result.events:
            self._recorder.note(self.controller.name, self._kind, obj, note)
        if deleting and result.done:
            await self._release(obj)
            return None
        if result.written is not None:
            self._own_writes.wrote(key_of(obj), version_of(result.written))
        await self._write(result.written or obj, result.status, "", result.requeue_after)
        return result

    def _defers(self, obj: Any, change: Json, requeue_after: float | None) -> bool:
        """Whether the changed status is left to a later pass, which is enqueued here."""
        key, may = key_of(obj), self.controller.defers_status
        if not change or may is None or not may(obj):
            self._deferral.forget(key)
            return False
        deleting = meta_of(obj).deletion_timestamp is not None
        urgent = not deleting and is_urgent(obj, change, self.controller.urgent_status)
        seconds = self._deferral.seconds(key, requeue_after, urgent=urgent)
        if seconds:
            self.queue.add_after(key, seconds, shard=self._shard(obj))
        return seconds > 0

    async def _reconcile(self, obj: Any) -> _PassResult:
        """Call see, plan, act and describe."""
        reconciler = self.controller.reconciler
        seen = await reconciler.see(obj, self._kube)
        move = reconciler.plan(obj, seen)
        written = None if isinstance(move, Wait | Done) else await reconciler.act(move)
        return _PassResult(
            status=reconciler.describe(obj, seen, move),
            requeue_after=reconciler.requeue_after(obj, seen, move),
            done=is_final(move),
            events=tuple(reconciler.events(obj, seen, move)),
            written=written,
        )

    def _sees_deleting(self, obj: Any) -> bool:
        if self._finalizer:
            return finalizer.has(obj, self._finalizer)
        return self.controller.sees_deleting

    async def _release(self, obj: Any) -> None:
        if not self._finalizer:
            return
        released = await finalizer.remove(self._kube, self._kind, obj, self._finalizer)
        if released is not None:
            self._own_writes.wrote(key_of(released), version_of(released))
        log.info("finalizer removed")

    async def _write(
        self, obj: Any, status: Any, paused: str, requeue_after: float | None = None
    ) -> None:
        """Write the status if it changed, with the ``Paused`` condition of pausable kinds."""
        want = self._wanted(obj, status, paused)
        if want is None:
            return
        owns = () if paused else self.controller.owns
        change = self._status.change(obj, want, owns=owns)
        if self._defers(obj, change, requeue_after) or not change:
            return
        left = await self._status.write(self._kind, obj, want, owns=owns, change=change)
        if left is not None and left is not obj:
            self._own_writes.wrote(key_of(left), version_of(left))
            self._metrics.status_written()

    def _wanted(self, obj: Any, status: Any, paused: str) -> Any:
        if not self.controller.pausable or self._form is None:
            return status
        condition = pause.pause_condition(self._form, paused, meta_of(obj).generation)
        tree = explicit(status)
        tree["conditions"] = [*tree.get("conditions", ()), as_tree(condition)]
        return tree

    def _schedule(self, item: Item, result: _PassResult | None) -> str:
        """Schedule the next pass."""
        if result is None:
            return "success"
        if result.requeue_after is not None:
            self.queue.add_after(item.key, result.requeue_after, shard=item.shard)
            return "requeue_after"
        resync = self.controller.resync_seconds or self._times.resync_seconds
        self.queue.add_after(item.key, self._jittered(resync), shard=item.shard, priority=LOW)
        return "success"

    # ---- failing

    async def _failed(self, item: Item, obj: Any, error: Exception) -> str:
        """Count and report the failure; schedule the retry that its class asks for."""
        failure = failures.explain(error)
        ordinary = failure.quiet and self.queue.failures(item.key) + 1 < QUIET_FAILURES
        self._log(failure, error, ordinary=ordinary)
        if failure.retry == "change":
            self.queue.forget(item.key)
            seconds = self._jittered(failure.retry_seconds or self._times.terminal_seconds)
            self.queue.add_after(item.key, seconds, shard=item.shard, priority=LOW)
        elif failure.retry_seconds is not None:
            self.queue.add_after(item.key, failure.retry_seconds, shard=item.shard)
        else:
            self.queue.retry(item.key, shard=item.shard)
        if failure.broken:
            self._metrics.broke()
        reported = not failure.quiet or self.queue.failures(item.key) >= QUIET_FAILURES
        if obj is not None and reported and not isinstance(error, fence.NotHeld):
            await self._report_failure(obj, failure)
        return "terminal" if failure.retry == "change" else "error"

    async def _report_failure(self, obj: Any, failure: Failure) -> None:
        note = Note(failure.reason, failure.message, "Warning")
        self._recorder.note(self.controller.name, self._kind, obj, note)
        if self._form is None or not self._condition:
            return
        generation = meta_of(obj).generation
        condition = failures.as_condition(self._form, self._condition, failure, generation)
        try:
            left = await self._status.write(self._kind, obj, {"conditions": [as_tree(condition)]})
            if left is not None and left is not obj:
                self._own_writes.wrote(key_of(left), version_of(left))
        except MoxwellError as error:
            log.warning("failure not reported", reason=error.reason, error=str(error))

    def _log(self, failure: Failure, error: Exception, *, ordinary: bool) -> None:
        if failure.broken:
            log.error("pass broken", reason=failure.reason, exc_info=error)
        elif ordinary:
            log.debug("pass failed", reason=failure.reason, error=failure.message)
        else:
            log.info("pass failed", reason=failure.reason, error=failure.message)

    def _jittered(self, seconds: float) -> float:
        return seconds * (1 + 0.1 * self._rng.random())

    def _pass_id(self) -> str:
        return f"{self._rng.getrandbits(32):08x}"


async def keep_running(name: str, run: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Run a background loop; restart it with backoff when it fails."""
    failures_in_a_row = 0
    while True:
        started = clock.monotonic()
        try:
            await run()
            return
        except MoxwellError as error:
            log.warning("loop failed", loop=name, reason=error.reason, error=str(error))
        except Exception as error:  # a failing loop must not stop the others
            log.error("loop broken", loop=name, exc_info=error)
        lasted = clock.monotonic() - started
        failures_in_a_row = 1 if lasted > LOOP_CAP_SECONDS else failures_in_a_row + 1
        await clock.sleep(min(2.0 ** min(failures_in_a_row - 1, 16), LOOP_CAP_SECONDS))
