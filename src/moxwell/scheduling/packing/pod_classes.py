"""
Pods that are alike to the solver: what is computed once per shape.

The topology groups of a shape are looked up when the shape is first tried, because a group that is
created late counts only the pods that were bound before the run.
"""

from moxwell.api.core.nodes import Taint
from moxwell.api.core.pods import Toleration
from moxwell.scheduling.packing.daemons import all_requirements, strict_requirements
from moxwell.scheduling.packing.pods import Labels, PodShape
from moxwell.scheduling.packing.relaxation import relaxed
from moxwell.scheduling.packing.resource_axis import ResourceAxis, Vector
from moxwell.scheduling.packing.topology import Topology
from moxwell.scheduling.packing.topology_groups import TopologyGroup
from moxwell.scheduling.requirement_sets import RequirementAlgebra, RequirementSet
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.scheduling.taints import untolerated
from moxwell.scheduling.well_known_labels import HOSTNAME

HostSplit = tuple[RequirementSet, LabelRequirement | None]
OwnedGroups = tuple[tuple[tuple[TopologyGroup, bool], ...], tuple[TopologyGroup, ...]]


class PodClass:
    """A pod shape with its requirements, requests and topology groups in one run."""

    __slots__ = (
        "domain_groups",
        "host",
        "host_groups",
        "inverse_owned",
        "number",
        "recorded",
        "recording",
        "requests",
        "requirements",
        "shape",
        "strict",
        "strict_host",
        "taint_answers",
        "tolerance",
        "volumes",
    )

    def __init__(
        self, number: int, shape: PodShape, requests: Vector, all: HostSplit, strict: HostSplit
    ) -> None:
        self.number = number
        self.shape = shape
        self.requests = requests
        self.requirements, self.host = all
        self.strict, self.strict_host = strict
        self.volumes: tuple[HostSplit, ...] = ()
        self.domain_groups: tuple[tuple[TopologyGroup, bool], ...] = ()
        self.host_groups: tuple[tuple[TopologyGroup, bool], ...] = ()
        self.inverse_owned: tuple[TopologyGroup, ...] = ()
        self.tolerance = 0
        self.recording: list[TopologyGroup] = []
        self.recorded = 0
        self.taint_answers: dict[tuple[Taint, ...], tuple[Taint, ...]] = {}

    def untolerated(self, taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
        """The taints of a node that pods of the class do not tolerate."""
        if not taints:
            return ()
        found = self.taint_answers.get(taints)
        if found is None:
            found = self.taint_answers[taints] = untolerated(taints, self.shape.tolerations)
        return found

    def pod_domains(self, group: TopologyGroup) -> LabelRequirement | None:
        """The domains of a group that the pod itself allows."""
        return self.strict_host if group.is_host else self.strict.get(group.key)


class PodClasses:
    """The classes of one run, and which follows when a soft constraint is dropped."""

    def __init__(
        self,
        algebra: RequirementAlgebra,
        axis: ResourceAxis,
        topology: Topology,
        ignore_preferences: bool,
        tolerate_prefer_no_schedule: bool,
    ) -> None:
        self._algebra = algebra
        self._axis = axis
        self._topology = topology
        self._strict_only = ignore_preferences
        self._tolerate = tolerate_prefer_no_schedule
        self._by_shape: dict[PodShape, PodClass] = {}
        self._by_id: dict[int, PodClass] = {}
        self._relaxed: dict[int, PodClass | None] = {}
        self._tolerances: dict[tuple[Toleration, ...], int] = {}
        self._demands: dict[tuple[object, ...], tuple[HostSplit, HostSplit]] = {}
        self._owned: dict[tuple[object, ...], OwnedGroups] = {}
        self._keeping_away: dict[tuple[str, Labels], tuple[TopologyGroup, ...]] = {}
        self._selecting: dict[tuple[str, Labels], list[TopologyGroup]] = {}
        self._looked_at: dict[tuple[str, Labels], int] = {}

    def of(self, shape: PodShape) -> PodClass:
        """The class of a shape, created if it is new."""
        found = self._by_id.get(id(shape))
        if found is None:
            found = self._by_shape.get(shape)
            if found is None:
                found = self._created(shape)
                self._by_shape[shape] = found
            self._by_id[id(shape)] = found
        return found

    def relaxed(self, pod_class: PodClass) -> PodClass | None:
        """The class with the next soft constraint dropped; None if there is none."""
        if pod_class.number not in self._relaxed:
            shape = relaxed(pod_class.shape, self._tolerate)
            self._relaxed[pod_class.number] = None if shape is None else self.of(shape)
        return self._relaxed[pod_class.number]

    def _created(self, shape: PodShape) -> PodClass:
        requests = self._axis.vector(dict(shape.requests))
        created = PodClass(len(self._by_shape), shape, requests, *self._node_demands(shape))
        created.tolerance = self._tolerances.setdefault(shape.tolerations, len(self._tolerances))
        created.volumes = tuple(self._split(self._algebra.of(t)) for t in shape.volume_topologies)
        return created

    def _node_demands(self, shape: PodShape) -> tuple[HostSplit, HostSplit]:
        """All requirements of a pod on its node, and the strict ones."""
        key = (shape.node_selector, shape.required_terms[:1], shape.preferred_terms[:1])
        found = self._demands.get(key)
        if found is None:
            strict = strict_requirements(self._algebra, shape)
            wanted = strict if self._strict_only else all_requirements(self._algebra, shape)
            found = self._demands[key] = (self._split(wanted), self._split(strict))
        return found

    def _split(self, wanted: RequirementSet) -> HostSplit:
        host = wanted.get(HOSTNAME)
        return (wanted if host is None else self._algebra.without(wanted, HOSTNAME)), host

    def create_groups(self, pod_class: PodClass) -> None:
        """Create the topology groups of a class, before any pod is placed."""
        self._owned_groups(pod_class.shape)

    def attach(self, pod_class: PodClass) -> None:
        """Look up the topology groups of a class; all groups of the run's pods exist."""
        shape = pod_class.shape
        owned, pod_class.inverse_owned = self._owned_groups(shape)
        labels = (shape.namespace, shape.labels)
        keeping_away = self._keeping_away.get(labels)
        if keeping_away is None:
            keeping_away = tuple(g for g in self._topology.inverse if g.rule.selects(shape))
            self._keeping_away[labels] = keeping_away
        groups = (*owned, *((g, True) for g in keeping_away))
        pod_class.domain_groups = tuple(pair for pair in groups if not pair[0].is_host)
        pod_class.host_groups = tuple(pair for pair in groups if pair[0].is_host)

    def _owned_groups(self, shape: PodShape) -> OwnedGroups:
        """The groups of a pod's constraints; pods that differ in size only share the answer."""
        key = constraints_of(shape)
        found = self._owned.get(key)
        if found is None:
            inverse = self._topology.inverse_owned(shape)
            owned = tuple((g, g.rule.selects(shape)) for g in self._topology.owned(shape))
            found = self._owned[key] = (owned, inverse)
        return found

    def recording_groups(self, pod_class: PodClass) -> list[TopologyGroup]:
        """The groups that count pods of the class; pods with equal labels share the list."""
        groups = self._topology.groups
        if pod_class.recorded < len(groups):
            labels = (pod_class.shape.namespace, pod_class.shape.labels)
            selecting = self._selecting.setdefault(labels, [])
            new = groups[self._looked_at.get(labels, 0) :]
            selecting += [g for g in new if g.rule.selects(pod_class.shape)]
            self._looked_at[labels] = len(groups)
            pod_class.recording, pod_class.recorded = selecting, len(groups)
        return pod_class.recording


def constraints_of(shape: PodShape) -> tuple[object, ...]:
    """What decides the topology groups of a pod."""
    return (
        shape.namespace,
        shape.labels,
        shape.node_selector,
        shape.required_terms,
        shape.affinity,
        shape.preferred_affinity,
        shape.anti_affinity,
        shape.preferred_anti_affinity,
        shape.spread,
        shape.tolerations,
    )
