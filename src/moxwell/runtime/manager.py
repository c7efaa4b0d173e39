"""
Starts caches, controllers, background loops and servers in order and stops them in reverse.

``assemble`` creates the parts in the required order: leadership on a plain client, then the fence,
then the fenced client for controllers and caches. The composition root adds controllers and loops
and awaits ``run``. Caches and servers run on every replica; passes and loops only for shards that
the replica holds. ``stop`` hands out no more keys, gives running passes a grace period and releases
the leases, so that the next replica need not wait for them to expire.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

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
from moxwell.runtime.leadership import Leader, Leadership, NoElection, Shards
from moxwell.runtime.metrics import ControllerMetrics, CountedHandler, Metrics
from moxwell.runtime.queue import Queue
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.settings import ManagerSettings
from moxwell.runtime.webhooks import Webhooks
from moxwell.runtime.worker import Times, Worker, keep_running

if TYPE_CHECKING:  # loaded where webhooks are served
    from moxwell.runtime.webhook_ca import WebhookCA

FLUSH_SECONDS = 2.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BackgroundLoop:
    """A loop beside the controllers; with ``shard`` None it runs on every replica."""

    name: str
    run: Callable[[], Awaitable[None]]
    shard: str | None = None


class Manager:
    """Runs controllers and background loops."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        *,
        settings: ManagerSettings,
        leadership: Leadership,
        metrics: Metrics,
        rng: random.Random,
        plain: Kube | None = None,
        clusters: Any = pause.CLUSTERS,
    ) -> None:
        self.caches = Caches(kube, clock, settings, metrics, rng)
        unfenced = plain or kube  # events are written without a lease
        self.recorder = Recorder(unfenced, clock, instance=settings.identity, metrics=metrics)
        self._kube, self._clock, self._settings = kube, clock, settings
        self._leadership, self._metrics, self._rng = leadership, metrics, rng
        self._cluster_kind = clusters
        self._workers: dict[str, Worker] = {}
        self._loops: list[BackgroundLoop] = []
        self._running: dict[BackgroundLoop, asyncio.Task[None]] = {}
        self._webhooks: Webhooks | None = None
        self._trust: WebhookCA | None = None
        self._undone: list[Callable[[], None]] = []
        self._tls = http.Tls()
        self._serving = asyncio.Event()
        self._trusted = asyncio.Event()
        self._stopping = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self.ports: dict[str, int] = {}

    # ---- composition

    def add(self, controller: Controller) -> None:
        """Add a controller."""
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

    def add_loop(
        self, name: str, run: Callable[[], Awaitable[None]], *, shard: str | None = None
    ) -> None:
        """
        Add a background loop: on every replica, or only where ``shard`` is held.

        It may return; if it fails, it is restarted with backoff.
        """
        self._loops.append(BackgroundLoop(name, run, shard))

    def on_exit(self, undo: Callable[[], None]) -> None:
        """Call ``undo`` when ``run`` ends, however it ends."""
        self._undone.append(undo)

    def serve_webhooks(self, webhooks: Webhooks, trust: "WebhookCA") -> None:
        """Serve admission and conversion reviews with the certificate that ``trust`` keeps."""
        self._webhooks, self._trust = webhooks, trust

    def wake(self, controller: str, key: Key) -> None:
        """Enqueue a key for a reason outside Kubernetes, such as a finished Proxmox task."""
        self._workers[controller].wake(key)

    def worker(self, controller: str) -> Worker:
        """The worker of a controller, for tests and inspection."""
        return self._workers[controller]

    # ---- running

    async def run(self) -> None:
        """Run until ``stop`` is called; cancellation stops at once and releases no lease."""
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
        """Finish the running passes, release the leases, return from ``run``."""
        self._stopping.set()

    @property
    def ready(self) -> bool:
        """Whether every cache is synced."""
        return self.caches.synced

    async def wait_ready(self) -> None:
        """Wait until the servers listen, the CA is announced and every cache is synced."""
        await self._serving.wait()
        if self._webhooks is not None:
            await self._trusted.wait()
        await self.caches.wait_synced()

    def sample(self) -> None:
        """Set the gauges; called at each scrape."""
        self.caches.sample()
        for worker in self._workers.values():
            worker.sample()

    async def _work(self) -> None:
        """Once the caches are synced, start the workers and the leader election."""
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
            async with asyncio.timeout(FLUSH_SECONDS):
                await self.recorder.flush()
                await self._leadership.release()
        except (MoxwellError, TimeoutError) as error:
            log.warning("stopped without farewell", error=str(error))

    async def _gained(self, shard: str | None) -> None:
        for worker in self._workers.values():
            worker.wake_shard(shard)
            worker.queue.wake()
        self._start(shard)

    async def _lost(self, shard: str | None) -> None:
        ending = [
            task
            for loop, task in tuple(self._running.items())
            if loop.shard is not None and (shard is None or loop.shard == shard)
        ]
        for task in ending:
            task.cancel()
        for worker in self._workers.values():
            await worker.abandon(shard)
        if ending:
            await asyncio.wait(ending)

    def _start(self, shard: str | None, *, only_always: bool = False) -> None:
        """Start the loops of a shard (None: of all) that do not run yet."""
        assert self._group is not None
        for loop in self._loops:
            always = loop.shard is None
            if loop in self._running or always != only_always:
                continue
            if always or shard is None or loop.shard == shard:
                task = self._group.create_task(self._run_loop(loop))
                self._running[loop] = task
                task.add_done_callback(partial(self._ended, loop))

    def _ended(self, loop: BackgroundLoop, _: asyncio.Task[None]) -> None:
        self._running.pop(loop, None)

    async def _run_loop(self, loop: BackgroundLoop) -> None:
        fence.enter(loop.shard or "")
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
        When a Service may route requests here.

        A replica that serves conversions does not wait for caches: filling them may need those
        conversions, and the apiserver sends requests only to ready replicas.
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
            Backoff(self._clock, settings.backoff_settings, self._rng),
            per_shard=controller.per_shard or settings.concurrency,
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
    The parts that a composition root needs.

    Controllers get ``kube`` and transports with effects the ``fence``; ``plain`` is not fenced and
    is for what every replica does (certificates).
    """

    kube: Kube
    plain: Kube
    fence: Fence
    manager: Manager
    metrics: Metrics


def no_regions() -> Collection[str]:
    """The regions of a program without regions."""
    return ()


def assemble(
    handler: Handler,
    clock: Clock,
    settings: ManagerSettings,
    *,
    registry: CollectorRegistry | None = None,
    rng: random.Random | None = None,
    regions: Callable[[], Collection[str]] = no_regions,
    clusters: Any = pause.CLUSTERS,
) -> Runtime:
    """Create a manager and its parts on one Kubernetes API."""
    rng = rng or random.Random()
    metrics = Metrics(registry or CollectorRegistry())
    handler = CountedHandler(handler, metrics)
    plain = Kube(handler)
    leadership: Leadership
    if not settings.elect:
        leadership = NoElection()
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
