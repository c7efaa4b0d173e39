"""
Pods that are alike to the solver, in one run.

The topology groups of a shape are looked up when the shape is first tried, because a group that is
created late counts only the pods that were bound before the run.
"""

from moxwell.api.core.nodes import Taint
from moxwell.scheduling.packing.pods import PodShape
from moxwell.scheduling.packing.shape_traits import ShapeIndex, ShapeTraits
from moxwell.scheduling.packing.topology import Topology
from moxwell.scheduling.packing.topology_groups import TopologyGroup
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.scheduling.taints import untolerated

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
        "traits",
        "volumes",
    )

    def __init__(self, traits: ShapeTraits) -> None:
        self.traits = traits
        self.number = traits.number
        self.shape = traits.shape
        self.requests = traits.requests
        self.requirements, self.host = traits.all
        self.strict, self.strict_host = traits.strict
        self.volumes = traits.volumes
        self.tolerance = traits.tolerance
        self.domain_groups: tuple[tuple[TopologyGroup, bool], ...] = ()
        self.host_groups: tuple[tuple[TopologyGroup, bool], ...] = ()
        self.inverse_owned: tuple[TopologyGroup, ...] = ()
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

    def __init__(self, shapes: ShapeIndex, topology: Topology) -> None:
        self._shapes = shapes
        self._topology = topology
        self._by_id: dict[int, PodClass] = {}
        self._by_number: dict[int, PodClass] = {}
        self._owned: dict[int, OwnedGroups] = {}
        self._keeping_away: dict[int, tuple[TopologyGroup, ...]] = {}
        self._selecting: dict[int, list[TopologyGroup]] = {}
        self._looked_at: dict[int, int] = {}

    def of(self, shape: PodShape) -> PodClass:
        """The class of a shape, created if it is new."""
        found = self._by_id.get(id(shape))
        if found is None:
            traits = self._shapes.of(shape)
            found = self._by_number.get(traits.number)
            if found is None:
                found = self._by_number[traits.number] = PodClass(traits)
            self._by_id[id(shape)] = found
        return found

    def relaxed(self, pod_class: PodClass) -> PodClass | None:
        """The class with the next soft constraint dropped; None if there is none."""
        shape = self._shapes.relaxed(pod_class.traits)
        return None if shape is None else self.of(shape)

    def create_groups(self, pod_class: PodClass) -> None:
        """Create the topology groups of a class, before any pod is placed."""
        self._owned_groups(pod_class.traits)

    def attach(self, pod_class: PodClass) -> None:
        """Look up the topology groups of a class; all groups of the run's pods exist."""
        traits, shape = pod_class.traits, pod_class.shape
        owned, pod_class.inverse_owned = self._owned_groups(traits)
        keeping_away = self._keeping_away.get(traits.labels)
        if keeping_away is None:
            keeping_away = tuple(g for g in self._topology.inverse if g.rule.selects(shape))
            self._keeping_away[traits.labels] = keeping_away
        if owned or keeping_away:
            groups = (*owned, *((g, True) for g in keeping_away))
            pod_class.domain_groups = tuple(pair for pair in groups if not pair[0].is_host)
            pod_class.host_groups = tuple(pair for pair in groups if pair[0].is_host)

    def _owned_groups(self, traits: ShapeTraits) -> OwnedGroups:
        """The groups of a pod's constraints; pods that differ in size only share the answer."""
        found = self._owned.get(traits.constraints)
        if found is None:
            inverse = self._topology.inverse_owned(traits.shape)
            owned = self._topology.owned(traits.shape)
            selected = tuple((g, g.rule.selects(traits.shape)) for g in owned)
            found = self._owned[traits.constraints] = (selected, inverse)
        return found

    def recording_groups(self, pod_class: PodClass) -> list[TopologyGroup]:
        """The groups that count pods of the class; pods with equal labels share the list."""
        groups = self._topology.groups
        if pod_class.recorded < len(groups):
            labels = pod_class.traits.labels
            selecting = self._selecting.setdefault(labels, [])
            new = groups[self._looked_at.get(labels, 0) :]
            selecting += [g for g in new if g.rule.selects(pod_class.shape)]
            self._looked_at[labels] = len(groups)
            pod_class.recording, pod_class.recorded = selecting, len(groups)
        return pod_class.recording
