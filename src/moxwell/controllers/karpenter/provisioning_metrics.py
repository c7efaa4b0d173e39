"""Metrics of provisioning and of node pools under Karpenter's names."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60)
_CONTROLLER = "provisioner"


class ProvisioningMetrics:
    """What the provisioner does; one object per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, help_: str, *labels: str) -> Gauge:
            return Gauge(f"karpenter_{name}", help_, labels, registry=registry)

        self._created = Counter(
            "karpenter_nodeclaims_created",
            "Node claims that were created",
            ("reason", "nodepool", "min_values_relaxed"),
            registry=registry,
        )
        self._duration = Histogram(
            "karpenter_scheduler_scheduling_duration_seconds",
            "Duration of a scheduling pass",
            ("controller",),
            registry=registry,
            buckets=_SECONDS,
        )
        self._decision = Histogram(
            "karpenter_pods_scheduling_decision_duration_seconds",
            "The time from seeing a pod until it is first tried to place it",
            registry=registry,
            buckets=_SECONDS,
        )
        self._unschedulable = gauge(
            "scheduler_unschedulable_pods_count", "Pods that no node pool can place", "controller"
        )
        self._ignored = gauge(
            "scheduler_ignored_pods_count", "Pods that are ignored for invalid constraints"
        )
        self._nodes = gauge("cluster_state_node_count", "Nodes of the cluster")
        self._synced = gauge("cluster_state_synced", "Whether the state of the cluster is known")
        self._set: dict[str, set[tuple[Gauge, tuple[str, ...]]]] = {}  # samples by pool
        pool = ("nodepool", "resource_type")
        self._usage = gauge("nodepools_usage", "Resources of the nodes of a pool", *pool)
        self._limit = gauge("nodepools_limit", "Limits of a node pool", *pool)
        self._cost = gauge("nodepools_cost_total", "Price per hour of the nodes of a pool", pool[0])

    def claim_created(self, pool: str, reason: str, *, relaxed: bool = False) -> None:
        """Count a node claim."""
        self._created.labels(reason, pool, "true" if relaxed else "false").inc()

    def pass_finished(self, seconds: float, unschedulable: int, ignored: int, nodes: int) -> None:
        """Record a scheduling pass."""
        self._duration.labels(_CONTROLLER).observe(seconds)
        self._unschedulable.labels(_CONTROLLER).set(unschedulable)
        self._ignored.set(ignored)
        self._nodes.set(nodes)
        self._synced.set(1)

    def pods_decided(self, seconds: Iterable[float]) -> None:
        """Record how long pods waited for their first decision."""
        for each in seconds:
            self._decision.observe(each)

    def pool_counted(self, pool: str, resource: str, used: float, limit: float | None) -> None:
        """Record the usage of a pool and its limit."""
        resource = resource.lower().replace("-", "_")
        self._put(self._usage, used, pool, resource)
        if limit is not None:
            self._put(self._limit, limit, pool, resource)

    def pool_priced(self, pool: str, price: float) -> None:
        """Record what the nodes of a pool cost, with overlays."""
        self._put(self._cost, price, pool)

    def _put(self, gauge: Gauge, value: float, pool: str, *labels: str) -> None:
        gauge.labels(pool, *labels).set(value)
        self._set.setdefault(pool, set()).add((gauge, (pool, *labels)))

    def pool_gone(self, pool: str) -> None:
        """Forget a pool that was deleted."""
        for gauge, labels in self._set.pop(pool, ()):
            gauge.remove(*labels)
