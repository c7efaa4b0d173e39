"""Small clusters for tests of disruption."""

from dataclasses import replace
from typing import Any

from moxwell.scheduling.disruption.cluster_state import (
    DisruptionNode,
    DisruptionPool,
    DisruptionSnapshot,
)
from moxwell.scheduling.packing.cluster import ClusterSnapshot
from moxwell.scheduling.packing.nodes import ClusterNode
from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.requirements import requirement
from moxwell.scheduling.well_known_labels import CAPACITY_TYPE
from unit.scheduling.packing_scenes import TYPES, cluster, node, pod, pool

NOW = 1767268800.0  # 2026-01-01T12:00:00Z, a Thursday
ON_DEMAND = requirement(CAPACITY_TYPE, "In", ["on-demand"])


def bound(name: str, on: str, cpu: str = "1", **changes: Any) -> PodDemand:
    """A running pod of a ReplicaSet."""
    spec = changes.pop("spec", {})
    return replace(pod(name, cpu, on=on, **spec), owner="ReplicaSet", **changes)


def on_node(name: str, cpu: int = 4, *, state: dict[str, Any] | None = None, **changes: Any
) -> DisruptionNode:  # fmt: skip
    return DisruptionNode(node(name, cpu, **changes), NOW - 3600, **(state or {}))


def own_pool(**changes: Any) -> DisruptionPool:
    budgets = changes.pop("budgets", ())
    return DisruptionPool("default", changes.pop("types", TYPES), budgets=budgets, **changes)


def scene(nodes: list[DisruptionNode], pods: list[PodDemand], **changes: Any) -> DisruptionSnapshot:
    """A cluster with one pool, whose budgets allow everything."""
    inner: tuple[ClusterNode, ...] = tuple(n.node for n in nodes)
    own: ClusterSnapshot = cluster(pool(requirements=(ON_DEMAND,)), nodes=inner, pods=tuple(pods))
    known: dict[str, Any] = {"pools": (own_pool(),), "now": NOW}
    return DisruptionSnapshot(own, nodes=tuple(nodes), **(known | changes))
