"""
The resources that daemon sets use on a new node, by instance type.

Types on which the same daemon pods would run form a group. As in Karpenter, a daemon pod whose
first required node term does not match a type loses that term for all types and nodes that follow.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from moxwell.api.core.nodes import Taint
from moxwell.scheduling.packing.cluster import DaemonPod
from moxwell.scheduling.packing.node_filter import serves
from moxwell.scheduling.packing.pods import HostPort, PodShape
from moxwell.scheduling.packing.relaxation import tolerating
from moxwell.scheduling.packing.resource_axis import ResourceAxis, Vector
from moxwell.scheduling.packing.type_table import TypeTable, bits
from moxwell.scheduling.requirement_sets import RequirementAlgebra, RequirementSet
from moxwell.scheduling.resource_lists import PODS, total
from moxwell.scheduling.taints import untolerated


@dataclass(frozen=True, slots=True)
class DaemonGroup:
    """Instance types with the same daemon pods, what these request and their host ports."""

    types: int
    overhead: Vector | None = None
    requests: tuple[tuple[str, int], ...] = ()
    ports: tuple[HostPort, ...] = ()


@dataclass(slots=True)
class DaemonPods:
    """The daemon pods of a solver; the terms that were dropped stay dropped."""

    algebra: RequirementAlgebra
    axis: ResourceAxis
    pods: list[DaemonPod] = field(default_factory=list)

    def groups(
        self, table: TypeTable, options: int, pool: RequirementSet, taints: Sequence[Taint]
    ) -> tuple[DaemonGroup, ...]:
        """The groups of the types ``options`` of a pool."""
        members: dict[tuple[int, ...], int] = {}
        if not self.pods:
            return (DaemonGroup(options),)
        for index in bits(options):
            own = self.algebra.of(table.types[index].requirements)
            running = tuple(n for n in range(len(self.pods)) if self._runs(n, pool, own, taints))
            members[running] = members.get(running, 0) | 1 << index
        return tuple(self._group(types, running) for running, types in members.items())

    def _group(self, types: int, running: tuple[int, ...]) -> DaemonGroup:
        shapes = [self.pods[n].shape for n in running]
        if not shapes:
            return DaemonGroup(types)
        requests = total(dict(s.requests) for s in shapes)
        ports = tuple(p for s in shapes for p in s.host_ports)
        return DaemonGroup(
            types, self.axis.vector(requests), tuple(sorted(requests.items())), ports
        )

    def _runs(
        self, number: int, pool: RequirementSet, own: RequirementSet, taints: Sequence[Taint]
    ) -> bool:
        """Whether a daemon pod runs on a type of a pool; drops its node terms that do not match."""
        pod = self.pods[number]
        tolerant = tolerating(pod.shape)
        shape = pod.shape if tolerant is None else tolerant
        if untolerated(taints, shape.tolerations):
            self.pods[number] = replace(pod, shape=shape)
            return False
        while True:
            self.pods[number] = replace(pod, shape=shape)
            wanted = strict_requirements(self.algebra, shape)
            if not self.algebra.mismatches(pool, wanted, lenient=True) and not (
                self.algebra.conflicts(own, wanted)
            ):
                return True
            if len(shape.required_terms) <= 1:
                return False
            shape = replace(shape, required_terms=shape.required_terms[1:])

    def on_node(
        self, node: RequirementSet, hostname: str, taints: Iterable[Taint]
    ) -> dict[str, int]:
        """What the daemon pods of an existing node request."""
        taints = tuple(taints)
        shapes = [p.shape for p in self.pods]
        running = [
            s
            for s in shapes
            if not untolerated(taints, s.tolerations)
            and serves(
                self.algebra, node, strict_requirements(self.algebra, s), hostname, lenient=False
            )
        ]
        return total(dict(s.requests) for s in running) | {PODS: 1000 * len(running)}


def strict_requirements(algebra: RequirementAlgebra, shape: PodShape) -> RequirementSet:
    """Node selector and the first required node term of a pod."""
    first = shape.required_terms[0] if shape.required_terms else ()
    return algebra.of((*algebra.of_labels(shape.node_selector).entries.values(), *first))


def all_requirements(algebra: RequirementAlgebra, shape: PodShape) -> RequirementSet:
    """The strict requirements and the heaviest preferred node term."""
    preferred = shape.preferred_terms[0].term if shape.preferred_terms else ()
    return algebra.of((*strict_requirements(algebra, shape).entries.values(), *preferred))
