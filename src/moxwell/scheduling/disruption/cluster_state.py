"""The input of disruption: pools with their policy, nodes with their age and condition. Pure."""

from dataclasses import dataclass, field
from functools import cached_property

from moxwell.api.karpenter.nodepools import DisruptionBudget
from moxwell.scheduling.packing.cluster import ClusterSnapshot
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.packing.nodes import ClusterNode
from moxwell.scheduling.packing.pods import Labels, PodDemand
from moxwell.scheduling.packing.rescheduling import DisruptionLimit

BALANCED = "Balanced"
WHEN_EMPTY = "WhenEmpty"


@dataclass(frozen=True, slots=True)
class DisruptionPool:
    """
    A NodePool as disruption sees it.

    Without ``consolidate_after`` (seconds) its nodes are not consolidated. ``replicas`` is set for
    a static pool, ``node_limit`` is its limit on the number of nodes.
    """

    name: str
    instance_types: tuple[InstanceType, ...] = field(hash=False)
    policy: str = "WhenEmptyOrUnderutilized"
    consolidate_after: float | None = 0.0
    budgets: tuple[DisruptionBudget, ...] = (DisruptionBudget(),)
    replicas: int | None = None
    node_limit: int | None = None

    @property
    def is_static(self) -> bool:
        return self.replicas is not None

    def instance_type(self, name: str) -> InstanceType | None:
        return next((t for t in self.instance_types if t.name == name), None)


@dataclass(frozen=True, slots=True)
class DisruptionNode:
    """
    A node as input of disruption; times are seconds of the snapshot's clock.

    ``nominated``: a pending pod is expected on it. ``in_progress``: a command already disrupts it.
    ``instance_terminating``: the machine is already being deleted. ``has_buffer``: headroom of a
    CapacityBuffer is placed on it.
    """

    node: ClusterNode
    created: float = 0.0
    annotations: Labels = ()
    ready: bool = True
    consolidatable: bool = True
    initialized_at: float | None = None
    last_pod_event: float | None = None
    drifted_since: float | None = None
    expire_after: float | None = None
    termination_grace_period: float | None = None
    nominated: bool = False
    in_progress: bool = False
    instance_terminating: bool = False
    has_buffer: bool = False

    @property
    def name(self) -> str:
        return self.node.name


@dataclass(frozen=True)
class DisruptionSnapshot:
    """
    A cluster at the time ``now``.

    ``cluster`` holds the pools that may create nodes (not the static ones), the nodes and the bound
    pods; ``nodes`` are the same nodes; ``pending`` are the pods that wait for a node.
    """

    cluster: ClusterSnapshot
    pools: tuple[DisruptionPool, ...]
    nodes: tuple[DisruptionNode, ...]
    pending: tuple[PodDemand, ...] = ()
    limits: tuple[DisruptionLimit, ...] = ()
    now: float = 0.0
    spot_to_spot: bool = False

    @cached_property
    def pools_by_name(self) -> dict[str, DisruptionPool]:
        return {p.name: p for p in self.pools}

    @cached_property
    def pods_by_node(self) -> dict[str, tuple[PodDemand, ...]]:
        found: dict[str, list[PodDemand]] = {}
        for pod in self.cluster.pods:
            found.setdefault(pod.node_name, []).append(pod)
        return {name: tuple(pods) for name, pods in found.items()}

    def pods_on(self, name: str) -> tuple[PodDemand, ...]:
        return self.pods_by_node.get(name, ())
