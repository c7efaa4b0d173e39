"""Metrics of node claims and nodes under Karpenter's names."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram

from moxwell.scheduling.well_known_labels import CAPACITY_TYPE, NODE_POOL, ZONE

_SECONDS = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_LIFETIMES = (3600, 6 * 3600, 86400, 7 * 86400, 14 * 86400, 30 * 86400, 90 * 86400)


class ClaimMetrics:
    """What happened to node claims, nodes and their pods; one object per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._add_claims(registry)
        self._add_nodes(registry)

    def _add_claims(self, registry: CollectorRegistry) -> None:
        pool, capacity = "nodepool", "capacity_type"
        self._terminated = Counter(
            "karpenter_nodeclaims_terminated",
            "Node claims that were terminated",
            (pool, capacity, "zone"),
            registry=registry,
        )
        self._disrupted = Counter(
            "karpenter_nodeclaims_disrupted",
            "Node claims that were disrupted",
            ("reason", pool, capacity),
            registry=registry,
        )
        self._unhealthy = Counter(
            "karpenter_nodeclaims_unhealthy_disrupted",
            "Node claims that were deleted because their node was unhealthy",
            ("condition", pool, capacity, "image_id"),
            registry=registry,
        )
        self._termination = Histogram(
            "karpenter_nodeclaims_termination_duration_seconds",
            "Duration of terminations of node claims",
            (pool,),
            registry=registry,
            buckets=_SECONDS,
        )
        self._instance_termination = Histogram(
            "karpenter_nodeclaims_instance_termination_duration_seconds",
            "Duration of terminations of machines",
            (pool,),
            registry=registry,
            buckets=_SECONDS,
        )

    def _add_nodes(self, registry: CollectorRegistry) -> None:
        pool = "nodepool"

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"karpenter_{name}", text, labels, registry=registry)

        self._nodes_created = counter("nodes_created", "Nodes that registered", pool, "zone")
        self._nodes_terminated = counter("nodes_terminated", "Nodes that ended", pool, "zone")
        self._drained = counter("nodes_drained", "Nodes that were drained", pool)
        self._evictions = counter("pods_eviction_requests", "Requests to evict a pod", "code")
        self._pods_drained = counter("pods_drained", "Pods that were evicted", "reason")
        self._node_termination = Histogram(
            "karpenter_nodes_termination_duration_seconds",
            "Duration of terminations of nodes",
            (pool,),
            registry=registry,
            buckets=_SECONDS,
        )
        self._lifetime = Histogram(
            "karpenter_nodes_lifetime_duration_seconds",
            "Lifetime of nodes that ended",
            (pool,),
            registry=registry,
            buckets=_LIFETIMES,
        )

    def claim_disrupted(self, reason: str, labels: Mapping[str, str]) -> None:
        """A node claim was deleted for a reason."""
        self._disrupted.labels(reason, labels.get(NODE_POOL, ""), _capacity(labels)).inc()

    def claim_terminated(self, labels: Mapping[str, str], seconds: float) -> None:
        """The last trace of a node claim is gone."""
        pool = labels.get(NODE_POOL, "")
        self._terminated.labels(pool, _capacity(labels), labels.get(ZONE, "")).inc()
        self._termination.labels(pool).observe(seconds)

    def instance_terminated(self, labels: Mapping[str, str], seconds: float) -> None:
        """The machine of a node claim is gone, so long after its termination began."""
        self._instance_termination.labels(labels.get(NODE_POOL, "")).observe(max(0.0, seconds))

    def claim_unhealthy(self, condition: str, labels: Mapping[str, str], image: str) -> None:
        """A node claim was deleted because of a condition of its node."""
        pool = labels.get(NODE_POOL, "")
        self._unhealthy.labels(condition, pool, _capacity(labels), image).inc()

    def node_registered(self, labels: Mapping[str, str]) -> None:
        """A node registered."""
        self._nodes_created.labels(labels.get(NODE_POOL, ""), labels.get(ZONE, "")).inc()

    def node_drained(self, labels: Mapping[str, str]) -> None:
        """No pod of a node is left."""
        self._drained.labels(labels.get(NODE_POOL, "")).inc()

    def node_terminated(
        self, labels: Mapping[str, str], seconds: float, lifetime_seconds: float
    ) -> None:
        """The finalizer of a node is removed."""
        pool = labels.get(NODE_POOL, "")
        self._nodes_terminated.labels(pool, labels.get(ZONE, "")).inc()
        self._node_termination.labels(pool).observe(seconds)
        self._lifetime.labels(pool).observe(lifetime_seconds)

    def eviction_requested(self, code: int) -> None:
        """The Eviction API answered."""
        self._evictions.labels(str(code)).inc()

    def pod_evicted(self, reason: str) -> None:
        """A pod was evicted."""
        self._pods_drained.labels(reason).inc()


def _capacity(labels: Mapping[str, str]) -> str:
    return labels.get(CAPACITY_TYPE, "")
