"""
The Prometheus metrics of the runtime, in a registry that is passed in.

Names are controller-runtime's where the meaning is the same, so that its dashboards work unchanged;
our own begin with ``moxwell_``. Children are bound to their labels once per controller, because the
label lookup dominates the cost of counting.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from moxwell.api.requests import Handler, Request, Response
from moxwell.errors import Unreachable
from moxwell.runtime import queue

_SHORT = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_RESULTS = ("success", "error", "requeue", "requeue_after")


class Metrics:
    """Every metric of the runtime; created once per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._add_reconcile()
        self._add_queue()
        self._add_kubernetes()
        self._add_webhooks()

    def _add_reconcile(self) -> None:
        one = ("controller",)
        self.passes = self._counter(
            "controller_runtime_reconcile", "Passes by result", ("controller", "result")
        )
        self.errors = self._counter("controller_runtime_reconcile_errors", "Failed passes", one)
        self.terminal = self._counter(
            "controller_runtime_terminal_reconcile_errors", "Passes not worth retrying", one
        )
        self.panics = self._counter("controller_runtime_reconcile_panics", "Broken invariants", one)
        self.seconds = self._histogram(
            "controller_runtime_reconcile_time_seconds", "Length of a pass", one
        )
        self.workers = self._gauge(
            "controller_runtime_max_concurrent_reconciles", "Passes at a time, per shard", one
        )
        self.active = self._gauge("controller_runtime_active_workers", "Passes now", one)

    def _add_queue(self) -> None:
        work = ("name", "controller")
        self.depth = self._gauge("workqueue_depth", "Keys ready", (*work, "priority"))
        self.adds = self._counter("workqueue_adds", "Keys that became ready", work)
        self.waited = self._histogram(
            "workqueue_queue_duration_seconds", "From ready to handed out", work
        )
        self.worked = self._histogram(
            "workqueue_work_duration_seconds", "From handed out to given back", work
        )
        self.retries = self._counter("workqueue_retries", "Keys tried again after a failure", work)
        self.unfinished = self._gauge(
            "workqueue_unfinished_work_seconds", "Work in progress, summed", work
        )
        self.longest = self._gauge(
            "workqueue_longest_running_processor_seconds", "The oldest pass", work
        )

    def _add_kubernetes(self) -> None:
        self.leader = self._gauge("leader_election_master_status", "1 while held", ("name",))
        self.cached = self._gauge("moxwell_cache_objects", "Objects in a cache", ("kind",))
        self.changes = self._counter("moxwell_cache_changes", "Changes of a cache", ("kind",))
        self.relists = self._counter("moxwell_cache_relists", "Lists from scratch", ("kind", "why"))
        self.status_writes = self._counter(
            "moxwell_status_writes", "Status written because it changed", ("controller",)
        )
        self.requests = self._counter(
            "rest_client_requests", "Requests to Kubernetes", ("code", "method", "host")
        )
        self.notes = self._counter("moxwell_events", "Kubernetes events", ("result",))

    def _add_webhooks(self) -> None:
        self.reviews = self._counter(
            "controller_runtime_webhook_requests", "Reviews answered", ("webhook", "code")
        )
        self.review_seconds = self._histogram(
            "controller_runtime_webhook_latency_seconds", "Length of a review", ("webhook",)
        )
        self.reviewing = self._gauge(
            "controller_runtime_webhook_requests_in_flight", "Reviews now", ("webhook",)
        )

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...]) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, labels: tuple[str, ...]) -> Histogram:
        return Histogram(name, text, labels, registry=self.registry, buckets=_SHORT)


class CountedHandler:
    """A Kubernetes transport that counts responses by code and method."""

    def __init__(self, handler: Handler, metrics: Metrics, host: str = "") -> None:
        self._handler, self._metrics, self._host = handler, metrics, host
        self._children: dict[tuple[str, str], Counter] = {}

    async def handle(self, request: Request) -> Response:
        """Send the request and count the response."""
        try:
            response = await self._handler.handle(request)
        except Unreachable:
            self._count("<error>", request.method)
            raise
        self._count(str(response.status), request.method)
        return response

    def _count(self, code: str, method: str) -> None:
        child = self._children.get((code, method))
        if child is None:
            child = self._metrics.requests.labels(code, method, self._host)
            self._children[code, method] = child
        child.inc()


class ControllerMetrics(queue.QueueObserver):
    """The metrics of one controller and its queue."""

    def __init__(self, metrics: Metrics, controller: str) -> None:
        self._metrics, self._name = metrics, controller
        work = (controller, controller)
        self._passes = {r: metrics.passes.labels(controller, r) for r in _RESULTS}
        self._errors = metrics.errors.labels(controller)
        self._terminal = metrics.terminal.labels(controller)
        self._panics = metrics.panics.labels(controller)
        self._seconds = metrics.seconds.labels(controller)
        self._active = metrics.active.labels(controller)
        self._adds = metrics.adds.labels(*work)
        self._waited = metrics.waited.labels(*work)
        self._worked = metrics.worked.labels(*work)
        self._retries = metrics.retries.labels(*work)
        self._status_writes = metrics.status_writes.labels(controller)

    def added(self, priority: int) -> None:
        self._adds.inc()

    def handed_out(self, item: queue.Item) -> None:
        self._active.inc()
        self._waited.observe(item.waited)

    def done(self, item: queue.Item, seconds: float) -> None:
        self._active.dec()
        self._worked.observe(seconds)

    def retried(self) -> None:
        self._retries.inc()

    def passed(self, result: str, seconds: float) -> None:
        """A pass ended."""
        self._passes["error" if result == "terminal" else result].inc()
        self._seconds.observe(seconds)
        if result in ("error", "terminal"):
            self._errors.inc()
        if result == "terminal":
            self._terminal.inc()

    def broke(self) -> None:
        """A pass failed on a broken invariant."""
        self._panics.inc()

    def status_written(self) -> None:
        """A status was written."""
        self._status_writes.inc()

    def sample(self, of: queue.Queue) -> None:
        """Set the gauges from a queue; called at each scrape."""
        work = (self._name, self._name)
        running = of.running_seconds()
        self._metrics.workers.labels(self._name).set(of.per_shard)
        self._metrics.unfinished.labels(*work).set(sum(running))
        self._metrics.longest.labels(*work).set(max(running, default=0.0))
        for priority, count in of.ready_by_priority().items():
            self._metrics.depth.labels(*work, str(priority)).set(count)
