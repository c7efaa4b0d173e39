"""Metrics of voluntary disruption under Karpenter's names."""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_HOW = ("decision", "reason", "consolidation_type")
_SECONDS = (0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60)


class DisruptionMetrics:
    """What the disruption loop decides; one object per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        how = _HOW
        self._decisions = Counter(
            "karpenter_voluntary_disruption_decisions",
            "Decisions that were carried out",
            how,
            registry=registry,
        )
        self._by_pool = Counter(
            "karpenter_voluntary_disruption_decisions_by_nodepool",
            "Decisions that were carried out, by node pool",
            ("nodepool", *how),
            registry=registry,
        )
        self._failures = Counter(
            "karpenter_voluntary_disruption_queue_failures",
            "Commands that were undone",
            how,
            registry=registry,
        )
        self._add_observations(registry)
        self._add_consolidation(registry)

    def _add_observations(self, registry: CollectorRegistry) -> None:
        self._rejected = Counter(
            "karpenter_voluntary_disruption_failed_validations",
            "Nodes that were selected for disruption and failed the validation",
            ("consolidation_type",),
            registry=registry,
        )
        self._duration = Histogram(
            "karpenter_voluntary_disruption_decision_evaluation_duration_seconds",
            "Duration of a decision about disruption",
            ("reason", "consolidation_type"),
            registry=registry,
            buckets=_SECONDS,
        )
        self._eligible = Gauge(
            "karpenter_voluntary_disruption_eligible_nodes",
            "Nodes that are eligible for disruption",
            ("reason",),
            registry=registry,
        )
        self._allowed = Gauge(
            "karpenter_nodepools_allowed_disruptions",
            "Nodes of a pool that may be disrupted at the same time",
            ("nodepool", "reason"),
            registry=registry,
        )

    def _add_consolidation(self, registry: CollectorRegistry) -> None:
        self._consuming = Gauge(
            "karpenter_nodepools_nodes_consuming_budgets",
            "Nodes of a pool that use its disruption budgets up",
            ("nodepool", "reason"),
            registry=registry,
        )
        self._timeouts = Counter(
            "karpenter_voluntary_disruption_consolidation_timeouts",
            "Decisions about consolidation that took too long",
            ("consolidation_type",),
            registry=registry,
        )
        for kind in ("multi", "single"):
            self._timeouts.labels(kind)
        how = ("decision", "nodepool", "policy")
        self._moves = Counter(
            "karpenter_consolidation_moves",
            "Moves that the policy Balanced evaluated",
            how,
            registry=registry,
        )
        self._scores = Histogram(
            "karpenter_consolidation_score",
            "Scores of moves of the policy Balanced",
            how,
            registry=registry,
            buckets=(0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0),
        )

    def command_started(
        self, pools: Iterable[str], decision: str, reason: str, consolidation_type: str
    ) -> None:
        """A command is carried out."""
        how = (decision, reason.lower(), consolidation_type)
        self._decisions.labels(*how).inc()
        for pool in sorted(set(pools)):
            self._by_pool.labels(pool, *how).inc()

    def command_undone(self, decision: str, reason: str, consolidation_type: str) -> None:
        """A command failed."""
        self._failures.labels(decision, reason.lower(), consolidation_type).inc()

    def rejected(self, consolidation_type: str, nodes: int) -> None:
        """A command did not hold until it was checked again."""
        self._rejected.labels(consolidation_type).inc(nodes)

    def decided(self, seconds: float, reason: str, consolidation_type: str) -> None:
        """A decision took this long; the labels are empty if nothing was to be done."""
        self._duration.labels(reason.lower(), consolidation_type).observe(seconds)

    def timed_out(self, consolidation_type: str) -> None:
        """A decision about consolidation took too long and was ended."""
        self._timeouts.labels(consolidation_type).inc()

    def scored(self, moves: Iterable[tuple[str, str, float, bool]]) -> None:
        """Moves that the policy of their pool judged: pool, policy, score, whether approved."""
        for pool, policy, score, approved in moves:
            labels = ("approved" if approved else "rejected", pool, policy)
            self._moves.labels(*labels).inc()
            self._scores.labels(*labels).observe(score)

    def observed(
        self,
        eligible: Mapping[str, int],
        allowed: Mapping[tuple[str, str], int],
        consuming: Mapping[str, int],
    ) -> None:
        """The eligible nodes by reason, what budgets allow, and the nodes that use them up."""
        for pool, nodes in consuming.items():
            for reason in eligible:
                self._consuming.labels(pool, reason).set(nodes)
        for reason, nodes in eligible.items():
            self._eligible.labels(reason.lower()).set(nodes)
        for (pool, reason), nodes in allowed.items():
            self._allowed.labels(pool, reason).set(nodes)
