"""
Which nodes may be disrupted, with their price and the cost of disrupting them. Pure.

Consolidation respects pods that block eviction. Drift does too, unless the node has a termination
grace period, which bounds how long they can block.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isnan

from moxwell.scheduling.disruption.cluster_state import (
    WHEN_EMPTY,
    DisruptionNode,
    DisruptionPool,
    DisruptionSnapshot,
)
from moxwell.scheduling.disruption.costs import NODE_COST, disruption_cost
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.packing.rescheduling import (
    blocking_limits,
    is_disruptable,
    is_reschedulable,
)
from moxwell.scheduling.well_known_labels import (
    CAPACITY_TYPE,
    DO_NOT_DISRUPT,
    INSTANCE_TYPE,
    NODE_POOL,
    ZONE,
)


@dataclass(frozen=True, slots=True)
class DisruptionBlocked:
    """
    Why a node is not disrupted, in a sentence.

    ``quiet``: Karpenter publishes no event about it, because it is as intended.
    """

    message: str
    quiet: bool = False

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class DisruptionCandidate:
    """A node that may be disrupted; ``pods`` are those that will need another node."""

    state: DisruptionNode
    pool: DisruptionPool
    instance_type: InstanceType | None
    price: float
    cost: float
    pods: tuple[PodDemand, ...]

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.state.node.labels)

    @property
    def capacity_type(self) -> str:
        return self.labels.get(CAPACITY_TYPE, "")

    @property
    def savings_ratio(self) -> float:
        """Price per cost of disruption; the highest is disrupted first."""
        return self.price / self.cost

    @property
    def is_empty(self) -> bool:
        """Whether no pod has a positive eviction cost."""
        return self.cost <= NODE_COST


CandidateFilter = Callable[[DisruptionCandidate], DisruptionBlocked | None]


def node_price(node: DisruptionNode, instance_type: InstanceType | None) -> float:
    """The price of a running node; 0 if its offering is not listed any more."""
    if instance_type is None:
        return 0.0
    labels = dict(node.node.labels)
    price = instance_type.offering_price(labels.get(ZONE, ""), labels.get(CAPACITY_TYPE, ""))
    return 0.0 if price is None or isnan(price) else price


def candidate_of(
    snapshot: DisruptionSnapshot, node: DisruptionNode, *, eventual: bool = False
) -> DisruptionCandidate | DisruptionBlocked:
    """
    The node as a candidate, or why it must not be disrupted.

    With ``eventual`` pods do not block on a node that has a termination grace period.
    """
    if (blocked := node_block(node)) is not None:
        return blocked
    labels = dict(node.node.labels)
    pool = snapshot.pools_by_name.get(labels[NODE_POOL])
    if pool is None or not pool.instance_types:
        return DisruptionBlocked(f"NodePool not found (NodePool={labels[NODE_POOL]})")
    pods = snapshot.pods_on(node.name)
    bounded = eventual and node.termination_grace_period is not None
    if not bounded and (blocked := pod_block(snapshot, pods)) is not None:
        return blocked
    own = pool.instance_type(labels.get(INSTANCE_TYPE, ""))
    moving = tuple(p for p in pods if is_reschedulable(p))
    return DisruptionCandidate(
        node, pool, own, node_price(node, own), disruption_cost(moving), moving
    )


def node_block(node: DisruptionNode) -> DisruptionBlocked | None:
    """Why the node itself must not be disrupted."""
    checks = (
        (node.in_progress, "candidate is already being disrupted"),
        (not node.node.managed, "node isn't managed by karpenter"),
        (not node.node.has_node, "nodeclaim does not have an associated node"),
        (not node.node.initialized, "node isn't initialized"),
        (node.node.deleting, "node is deleting or marked for deletion"),
        (node.nominated, "node is nominated for a pending pod"),
        (
            dict(node.annotations).get(DO_NOT_DISRUPT) == "true",
            f'disruption is blocked through the "{DO_NOT_DISRUPT}" annotation',
        ),
        (
            NODE_POOL not in dict(node.node.labels),
            f"node doesn't have required label (label={NODE_POOL})",
        ),
    )
    return next((DisruptionBlocked(text) for found, text in checks if found), None)


def pod_block(snapshot: DisruptionSnapshot, pods: Iterable[PodDemand]) -> DisruptionBlocked | None:
    """Why pods keep their node from being disrupted."""
    pods = tuple(pods)
    for pod in pods:
        if not is_disruptable(pod, snapshot.now):
            return DisruptionBlocked(f'pod has "{DO_NOT_DISRUPT}" annotation (Pod={pod.key})')
    for pod in pods:
        limits = blocking_limits(pod, snapshot.limits, snapshot.now, for_good=False)
        names = " ".join(f"{each.namespace}/{each.name}" for each in limits)
        if len(limits) > 1:
            return DisruptionBlocked(
                f"eviction does not support multiple PDBs (PodDisruptionBudget(s)=[{names}])"
            )
        if limits:
            return DisruptionBlocked(f"pdb prevents pod evictions (PodDisruptionBudget=[{names}])")
    return None


def all_candidates(
    snapshot: DisruptionSnapshot, *, eventual: bool = False
) -> tuple[DisruptionCandidate, ...]:
    """The nodes that nothing keeps from being disrupted, by name."""
    found = (candidate_of(snapshot, n, eventual=eventual) for n in snapshot.nodes)
    kept = (c for c in found if isinstance(c, DisruptionCandidate))
    return tuple(sorted(kept, key=lambda c: c.name))


def emptiness_block(candidate: DisruptionCandidate) -> DisruptionBlocked | None:
    """Why a node is not deleted as empty."""
    pool = candidate.pool
    if pool.is_static:
        return DisruptionBlocked(f'NodePool "{pool.name}" is static', quiet=True)
    if pool.consolidate_after is None:
        return DisruptionBlocked(f'NodePool "{pool.name}" has consolidation disabled')
    if candidate.state.has_buffer:
        return DisruptionBlocked(f'Node "{candidate.name}" has buffer pods')
    if not candidate.is_empty:
        return DisruptionBlocked("Node is not empty", quiet=True)
    return _waiting(candidate)


def consolidation_block(candidate: DisruptionCandidate) -> DisruptionBlocked | None:
    """Why a node is not consolidated; empty nodes are left to emptiness."""
    pool, labels = candidate.pool, candidate.labels
    if pool.is_static:
        return DisruptionBlocked(f'NodePool "{pool.name}" is static', quiet=True)
    if candidate.instance_type is None:
        found = labels.get(INSTANCE_TYPE, "")
        return DisruptionBlocked(f'Instance Type "{found}" not found')
    for key in (CAPACITY_TYPE, ZONE):
        if key not in labels:
            return DisruptionBlocked(f'Node does not have label "{key}"')
    if pool.consolidate_after is None:
        return DisruptionBlocked(f'NodePool "{pool.name}" has consolidation disabled')
    if candidate.is_empty:
        return DisruptionBlocked("Node is empty", quiet=True)
    if pool.policy == WHEN_EMPTY:
        return DisruptionBlocked(
            f'NodePool "{pool.name}" has consolidation policy WhenEmpty, but node is not empty'
        )
    return _waiting(candidate)


def _waiting(candidate: DisruptionCandidate) -> DisruptionBlocked | None:
    if candidate.state.consolidatable:
        return None
    return DisruptionBlocked("consolidateAfter of the NodePool has not passed", quiet=True)


def drift_block(candidate: DisruptionCandidate) -> DisruptionBlocked | None:
    """Why a node is not replaced as drifted."""
    if candidate.pool.is_static:
        return DisruptionBlocked(f'NodePool "{candidate.pool.name}" is static')
    return _undrifted(candidate)


def static_drift_block(candidate: DisruptionCandidate) -> DisruptionBlocked | None:
    """Why a node of a static pool is not replaced as drifted."""
    if not candidate.pool.is_static:
        return DisruptionBlocked(f'NodePool "{candidate.pool.name}" is not static')
    return _undrifted(candidate)


def _undrifted(candidate: DisruptionCandidate) -> DisruptionBlocked | None:
    if candidate.state.drifted_since is not None:
        return None
    return DisruptionBlocked("Node has not drifted")


def eligible(
    candidates: Iterable[DisruptionCandidate], block: CandidateFilter
) -> tuple[DisruptionCandidate, ...]:
    """The candidates that a method may disrupt."""
    return tuple(c for c in candidates if block(c) is None)


def by_savings(candidates: Iterable[DisruptionCandidate]) -> list[DisruptionCandidate]:
    """Candidates by price per cost of disruption, highest first, then by name."""
    return sorted(candidates, key=lambda c: (-c.savings_ratio, c.name))


def by_drift(candidates: Iterable[DisruptionCandidate]) -> list[DisruptionCandidate]:
    """Candidates without pods that move first, then by how long they have drifted."""
    return sorted(candidates, key=lambda c: (bool(c.pods), c.state.drifted_since or 0.0, c.name))


def within_allowances(
    candidates: Iterable[DisruptionCandidate], allowances: dict[str, int]
) -> list[DisruptionCandidate]:
    """The first candidates of each pool, as many as its budget allows."""
    left = dict(allowances)
    kept: list[DisruptionCandidate] = []
    for each in candidates:
        if left.get(each.pool.name, 0) > 0:
            left[each.pool.name] -= 1
            kept.append(each)
    return kept
