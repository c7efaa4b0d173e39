"""Nodes that exist, while a run adds pods to them, and the check whether a pod fits one."""

from collections.abc import Iterable
from dataclasses import dataclass

from moxwell.api.core.nodes import Taint
from moxwell.scheduling.packing.bins import NodeRules
from moxwell.scheduling.packing.daemons import DaemonPods
from moxwell.scheduling.packing.failures import (
    HostPortTaken,
    NodeFull,
    PlacementFailure,
    UntoleratedTaints,
    VolumeLimitReached,
)
from moxwell.scheduling.packing.nodes import ClusterNode
from moxwell.scheduling.packing.pod_classes import PodClass
from moxwell.scheduling.packing.pods import HostPort, PodDemand
from moxwell.scheduling.packing.resource_axis import ResourceAxis, Vector, fits, minus
from moxwell.scheduling.requirement_sets import RequirementSet
from moxwell.scheduling.resource_lists import less, total
from moxwell.scheduling.well_known_labels import HOSTNAME

Volumes = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True, eq=False)
class NodeBase:
    """A node before a run: what is left of it without the pods that the run adds."""

    node: ClusterNode
    host: str
    taints: tuple[Taint, ...]
    requirements: RequirementSet
    remaining: Vector
    ports: tuple[HostPort, ...]
    volumes: Volumes


def node_bases(
    nodes: Iterable[ClusterNode],
    pods: Iterable[PodDemand],
    axis: ResourceAxis,
    rules: NodeRules,
    daemons: DaemonPods,
) -> tuple[NodeBase, ...]:
    """Nodes in the order in which they are tried: initialized ones first, then by name."""
    bound: dict[str, list[PodDemand]] = {}
    for pod in pods:
        if not pod.is_terminal:
            bound.setdefault(pod.node_name, []).append(pod)
    ordered = sorted(nodes, key=lambda n: (not n.initialized, n.name))
    return tuple(_base(n, bound.get(n.name, []), axis, rules, daemons) for n in ordered)


def _base(
    node: ClusterNode,
    pods: list[PodDemand],
    axis: ResourceAxis,
    rules: NodeRules,
    daemons: DaemonPods,
) -> NodeBase:
    labels = (pair for pair in node.labels if pair[0] != HOSTNAME)
    own = rules.algebra.of_labels(labels)
    used = total(dict(p.shape.requests) for p in pods)
    running = total(dict(p.shape.requests) for p in pods if p.is_daemon)
    expected = daemons.on_node(own, node.hostname, node.taints)
    reserved = {n: max(0, a - running.get(n, 0)) for n, a in expected.items()}
    left = less(less(node.allocatable, used), reserved)
    return NodeBase(
        node,
        node.hostname,
        node.taints,
        own,
        axis.vector(left),
        tuple(port for p in pods for port in p.shape.host_ports),
        frozenset(v for p in pods for v in p.shape.volumes),
    )


class ExistingBin:
    """An existing node in one run."""

    __slots__ = ("base", "pods", "ports", "remaining", "requirements", "volumes")

    def __init__(self, base: NodeBase) -> None:
        self.base = base
        self.requirements = base.requirements
        self.remaining = base.remaining
        self.ports = base.ports
        self.volumes = base.volumes
        self.pods: list[PodDemand] = []

    def add(self, pod: PodDemand, requests: Vector, requirements: RequirementSet) -> None:
        self.pods.append(pod)
        self.remaining = minus(self.remaining, requests)
        self.requirements = requirements
        self.ports += pod.shape.host_ports
        self.volumes |= frozenset(pod.shape.volumes)

    def fit(self, pod: PodClass, rules: NodeRules) -> RequirementSet | PlacementFailure:
        """The requirements of the node with the pod, or why the pod does not fit."""
        if not fits(pod.requests, self.remaining):
            return NodeFull()
        if taints := pod.untolerated(self.base.taints):
            return UntoleratedTaints(taints)
        if (full := self._volume_limit(pod)) is not None:
            return full
        if any(w.conflicts(p) for w in pod.shape.host_ports for p in self.ports):
            return HostPortTaken()
        base = rules.admitted(self.requirements, self.base.host, pod, lenient=False)
        if not isinstance(base, RequirementSet):
            return base
        if not pod.volumes:
            return rules.with_topology(base, self.base.host, pod, lenient=False)
        return self._fit_volumes(pod, rules, base)

    def _fit_volumes(
        self, pod: PodClass, rules: NodeRules, base: RequirementSet
    ) -> RequirementSet | PlacementFailure:
        host = self.base.host
        result: RequirementSet | PlacementFailure = base
        for volume in pod.volumes:
            result = rules.with_volume(base, host, volume, lenient=False)
            if isinstance(result, RequirementSet):
                result = rules.with_topology(result, host, pod, lenient=False)
                if isinstance(result, RequirementSet):
                    break
        return result

    def _volume_limit(self, pod: PodClass) -> VolumeLimitReached | None:
        if not pod.shape.volumes or not self.base.node.volume_limits:
            return None
        attached = self.volumes | frozenset(pod.shape.volumes)
        for driver, limit in self.base.node.volume_limits:
            count = sum(1 for d, _ in attached if d == driver)
            if count > limit:
                return VolumeLimitReached(driver, count, limit)
        return None
