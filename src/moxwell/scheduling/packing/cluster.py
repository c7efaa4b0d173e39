"""The input of the solver: pools, nodes, pods, daemon sets and namespaces at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moxwell.api.core.nodes import Taint
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.packing.nodes import ClusterNode
from moxwell.scheduling.packing.pods import Labels, PodDemand, PodShape
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.scheduling.well_known_labels import LabelRules


@dataclass(frozen=True, slots=True)
class ProvisioningPool:
    """A NodePool that may create nodes, with the instance types that its provider offers."""

    name: str
    instance_types: tuple[InstanceType, ...] = field(hash=False)
    requirements: tuple[LabelRequirement, ...] = ()
    labels: Labels = ()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    weight: int = 0
    limits: Mapping[str, int] = field(default_factory=dict, hash=False)
    node_class: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class DaemonPod:
    """The pod that a DaemonSet would run on each node."""

    name: str
    shape: PodShape


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """A cluster; ``pods`` are the bound ones."""

    pools: tuple[ProvisioningPool, ...]
    nodes: tuple[ClusterNode, ...] = ()
    pods: tuple[PodDemand, ...] = ()
    daemons: tuple[DaemonPod, ...] = ()
    namespaces: Mapping[str, Labels] = field(default_factory=dict, hash=False)
    rules: LabelRules = field(default_factory=LabelRules)


@dataclass(frozen=True, slots=True)
class SolverOptions:
    """
    Settings of Karpenter that change decisions.

    ``reserved_strict`` lets a pod wait rather than take on-demand capacity while a compatible
    reservation is only used up (provisioning); disruption falls back.
    """

    best_effort_min_values: bool = False
    ignore_preferences: bool = False
    reserved_capacity: bool = True
    reserved_strict: bool = True
    max_instance_types: int = 600


def by_weight(pools: tuple[ProvisioningPool, ...]) -> tuple[ProvisioningPool, ...]:
    """Pools in the order in which they are tried: by weight; of equal weight the later name."""
    by_name = sorted(pools, key=lambda p: p.name, reverse=True)
    return tuple(sorted(by_name, key=lambda p: -p.weight))
