"""
Everything that runs, started in order and stopped in reverse.

``assemble`` makes the parts in the one order that works: leadership over a plain client, then the
fence, then the fenced client that controllers and caches get. The composition root adds controllers
and other loops, then awaits ``run``. Caches and servers run on every replica; passes and loops only
for shares that this one holds. ``stop`` hands out no more keys, lets passes finish for a while,
gives the leases back and returns, so that the next replica need not wait for them to run out.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from moxwell.api.requests import Handler
from moxwell.clock import Clock
from moxwell.errors import Bug, MoxwellError
from moxwell.kube.client import Kube
from moxwell.runtime import fence, http, pause
from moxwell.runtime.backoff import Backoff
from moxwell.runtime.caches import Caches
from moxwell.runtime.events import Recorder
from moxwell.runtime.fence import Fence, FencedHandler
from moxwell.runtime.key import Key
from moxwell.runtime.leadership import Alone, Leader, Leadership, Shards
from moxwell.runtime.metrics import ControllerMetrics, CountedHandler, Metrics
from moxwell.runtime.queue import Queue
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.settings import Settings
from moxwell.runtime.webhook_ca import Trust
from moxwell.runtime.webhooks import Webhooks
from moxwell.runtime.worker import Times, Worker, keep_running

LAST_WORDS_SECONDS = 2.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Loop:
    """Something that runs beside the controllers; ``share`` None: on every replica, always."""

    name: str
    run: Callable[[], Awaitable[None]]
    share: str | None = None


class Manager:
    """Runs controllers and loops."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        *,
        settings: Settings,
        leadership: Leadership,
        metrics: Metrics,
        rng: random.Random,
        plain: Kube | None = None,
        clusters: Any = pause.CLUSTERS,
    ) -> None:
        self.caches = Caches(kube, clock, settings, metrics, rng)
        told = plain or kube  # events are written whatever is held
        self.recorder = Recorder(told, clock, instance=settings.identity, metrics=metrics)
        self._kube, self._clock, self._settings = kube, clock, settings
        self._leadership, self._metrics, self._rng = leadership, metrics, rng
        self._cluster_kind = clusters
        self._workers: dict[str, Worker] = {}
        self._loops: list[Loop] = []
        self._running: dict[Loop, asyncio.Task[None]] = {}
        self._webhooks: Webhooks | None = None
        self._trust: Trust | None = None
        self._undone: list[Callable[[], None]] = []
        self._tls = http.Tls()
        self._serving = asyncio.Event()
        self._trusted = asyncio.Event()
        self._stopping = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self.ports: dict[str, int] = {}

    # ---- composing

    def add(self, controller: Controller) -> None:
        """Run a controller."""
        if controller.name in self._workers:
            raise Bug(f"two controllers are called {controller.name}")
        worker = self._worker(controller)
        self._workers[controller.name] = worker
        for watch in controller.reconciler.watches:
            worker.watch(watch, self.caches.of(watch.kind))
        if controller.pausable:
            clusters = self.caches.of(self._cluster_kind, optional=True)
            own = self.caches.of(controller.reconciler.kind)
            worker.watch(pause.watch_clusters(self._cluster_kind, own), clusters)
        worker.subscribe()

    def also(
        self, name: str, run: Callable[[], Awaitable[None]], *, share: str | None = None
    ) -> None:
        """
        Run something else: on every replica, or only where ``share`` is held.

        It may return when it is done; if it fails it is started again, each time a little later.
        """
        self._loops.append(Loop(name, run, share))

    def afterwards(self, undo: Callable[[], None]) -> None:
        """Undo something when ``run`` is over, however it ended."""
        self._undone.append(undo)

    def serve_webhooks(self, webhooks: Webhooks, trust: Trust) -> None:
        """Answer admission and conversion reviews, under a certificate kept by ``trust``."""
        self._webhooks, self._trust = webhooks, trust

    def wake(self, controller: str, key: Key) -> None:
        """Something outside Kubernetes concerns this object: a task ended, a guest appeared."""
        self._workers[controller].wake(key)

    def worker(self, controller: str) -> Worker:
        """The worker of a controller, for those who test or inspect."""
        return self._workers[controller]

    # ---- running

    async def run(self) -> None:
        """Run until ``stop`` is called; cancelling stops at once and gives nothing back."""
        self._leadership.on.gained, self._leadership.on.lost = self._gained, self._lost
        async with AsyncExitStack() as servers:
            for undo in self._undone:
                servers.callback(undo)
            await self._serve(servers)
            self._serving.set()
            async with asyncio.TaskGroup() as group:
                self._group = group
                beside = [group.create_task(self.caches.run())]
                beside.append(group.create_task(self.recorder.run()))
                if self._webhooks and self._trust:
                    beside.append(
                        group.create_task(self._trust.run(self._use_certificate, self._trusted.set))
                    )
                self._start(None, only_always=True)
                work = group.create_task(self._work())
                await self._stopping.wait()
                await self._wind_down(work)
                for task in (*beside, *self._running.values()):
                    task.cancel()

    def stop(self) -> None:
        """Finish what runs, give back the leases, return from ``run``."""
        self._stopping.set()

    @property
    def ready(self) -> bool:
        """Whether every cache has been filled."""
        return self.caches.synced

    async def wait_ready(self) -> None:
        """Wait until it serves what it should, is trusted, and every cache is filled."""
        await self._serving.wait()
        if self._webhooks is not None:
            await self._trusted.wait()
        await self.caches.wait_synced()

    def sample(self) -> None:
        """Set the gauges; called when somebody scrapes."""
        self.caches.sample()
        for worker in self._workers.values():
            worker.sample()

    async def _work(self) -> None:
        """Once the caches are full: hand out keys, and try to hold what is ours."""
        await self.caches.wait_synced()
        log.info("caches filled", controllers=len(self._workers))
        async with asyncio.TaskGroup() as group:
            leading = group.create_task(self._leadership.run())
            passes = [group.create_task(w.run()) for w in self._workers.values()]
            await self._stopping.wait()
            if passes:
                await asyncio.wait(passes, timeout=self._settings.grace_seconds)
            await self._lost(None)
            leading.cancel()

    async def _wind_down(self, work: asyncio.Task[None]) -> None:
        for worker in self._workers.values():
            worker.queue.shut()
        if not self.ready:
            work.cancel()
        await asyncio.wait([work])
        try:
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self.recorder.flush()
                await self._leadership.release()
        except (MoxwellError, TimeoutError) as error:
            log.warning("stopped without farewell", error=str(error))

    async def _gained(self, share: str | None) -> None:
        for worker in self._workers.values():
            worker.wake_share(share)
            worker.queue.wake()
        self._start(share)

    async def _lost(self, share: str | None) -> None:
        ending = [
            task
            for loop, task in tuple(self._running.items())
            if loop.share is not None and (share is None or loop.share == share)
        ]
        for task in ending:
            task.cancel()
        for worker in self._workers.values():
            await worker.abandon(share)
        if ending:
            await asyncio.wait(ending)

    def _start(self, share: str | None, *, only_always: bool = False) -> None:
        """Start the loops of a share (None: of all) that do not run yet."""
        assert self._group is not None
        for loop in self._loops:
            always = loop.share is None
            if loop in self._running or always != only_always:
                continue
            if always or share is None or loop.share == share:
                task = self._group.create_task(self._run_loop(loop))
                self._running[loop] = task
                task.add_done_callback(partial(self._ended, loop))

    def _ended(self, loop: Loop, _: asyncio.Task[None]) -> None:
        self._running.pop(loop, None)

    async def _run_loop(self, loop: Loop) -> None:
        fence.enter(loop.share or "")
        structlog.contextvars.bind_contextvars(loop=loop.name)
        await keep_running(loop.name, loop.run, self._clock)

    async def _serve(self, servers: AsyncExitStack) -> None:
        settings = self._settings
        if settings.health is not None:
            checks = self._checks()
            app = http.health_app(checks, self._metrics.registry, self.sample)
            tls = http.own_tls(settings.health, self._clock.now())
            serving = http.serving(app, settings.health, tls)
            self.ports["health"] = await servers.enter_async_context(serving)
        if settings.webhooks is not None and self._webhooks is not None:
            app = http.webhook_app(self._webhooks, self._metrics)
            serving = http.serving(app, settings.webhooks, self._tls.context)
            self.ports["webhooks"] = await servers.enter_async_context(serving)

    def _checks(self) -> dict[str, Callable[[], bool]]:
        """
        When a Service may send us requests.

        Who serves conversions does not wait for caches: filling them may need those conversions,
        and the apiserver asks only those who are ready.
        """
        if self._webhooks is not None and self._settings.webhooks is not None:
            return {"webhooks": self._trusted.is_set}
        return {"caches": lambda: self.ready}

    def _use_certificate(self, pair: Any) -> None:
        self._tls.load(pair)

    def _worker(self, controller: Controller) -> Worker:
        metrics = ControllerMetrics(self._metrics, controller.name)
        settings = self._settings
        queue = Queue(
            self._clock,
            Backoff(self._clock, settings.pace, self._rng),
            per_share=controller.per_share or settings.concurrency,
            gate=self._leadership.holds,
            watcher=metrics,
        )
        clusters = (
            self.caches.of(self._cluster_kind, optional=True) if controller.pausable else None
        )
        return Worker(
            controller,
            kube=self._kube,
            clock=self._clock,
            cache=self.caches.of(controller.reconciler.kind),
            queue=queue,
            metrics=metrics,
            recorder=self.recorder,
            times=Times(
                resync_seconds=settings.resync_seconds,
                terminal_seconds=settings.terminal_seconds,
            ),
            rng=self._rng,
            clusters=clusters,
        )


@dataclass(frozen=True, slots=True)
class Runtime:
    """
    The parts a composition root needs.

    Controllers get ``kube``, transports of effects the ``fence``; ``plain`` writes whatever is held
    and is for what every replica does (certificates).
    """

    kube: Kube
    plain: Kube
    fence: Fence
    manager: Manager
    metrics: Metrics


def no_regions() -> Collection[str]:
    """The regions of a program that has none."""
    return ()


def assemble(
    handler: Handler,
    clock: Clock,
    settings: Settings,
    *,
    registry: CollectorRegistry | None = None,
    rng: random.Random | None = None,
    regions: Callable[[], Collection[str]] = no_regions,
    clusters: Any = pause.CLUSTERS,
) -> Runtime:
    """Make a manager and what goes with it over one Kubernetes API."""
    rng = rng or random.Random()
    metrics = Metrics(registry or CollectorRegistry())
    handler = CountedHandler(handler, metrics)
    plain = Kube(handler)
    leadership: Leadership
    if not settings.elect:
        leadership = Alone()
    elif settings.shards:
        leadership = Shards(plain, clock, settings, rng, metrics, regions=regions)
    else:
        leadership = Leader(plain, clock, settings, rng, metrics)
    guard = Fence(leadership.holds)
    kube = Kube(FencedHandler(handler, guard))
    manager = Manager(
        kube,
        clock,
        settings=settings,
        leadership=leadership,
        metrics=metrics,
        rng=rng,
        plain=plain,
        clusters=clusters,
    )
    return Runtime(kube, plain, guard, manager, metrics)
