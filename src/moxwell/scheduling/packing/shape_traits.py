"""
What a pod shape decides in every run on one snapshot: computed once per shape and solver.

The result of every method depends on the arguments alone. A shape stays referenced as long as the
index, so that its ``id`` can serve as a key.
"""

from dataclasses import dataclass

from moxwell.api.core.pods import Toleration
from moxwell.scheduling.packing.daemons import all_requirements, strict_requirements
from moxwell.scheduling.packing.pods import Labels, PodShape
from moxwell.scheduling.packing.relaxation import relaxed
from moxwell.scheduling.packing.resource_axis import ResourceAxis, Vector
from moxwell.scheduling.requirement_sets import RequirementAlgebra, RequirementSet
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.scheduling.well_known_labels import HOSTNAME

HostSplit = tuple[RequirementSet, LabelRequirement | None]


@dataclass(frozen=True, slots=True, eq=False)
class ShapeTraits:
    """
    A shape with its requirements and requests.

    Shapes with equal labels and namespace, equal topology constraints or equal tolerations share
    the numbers ``labels``, ``constraints`` and ``tolerance``.
    """

    number: int
    shape: PodShape
    requests: Vector
    all: HostSplit
    strict: HostSplit
    volumes: tuple[HostSplit, ...]
    labels: int
    constraints: int
    tolerance: int


class ShapeIndex:
    """The traits of the shapes that a solver has seen."""

    def __init__(
        self,
        algebra: RequirementAlgebra,
        axis: ResourceAxis,
        *,
        ignore_preferences: bool,
        tolerate_prefer_no_schedule: bool,
    ) -> None:
        self._algebra = algebra
        self._axis = axis
        self._strict_only = ignore_preferences
        self._tolerate = tolerate_prefer_no_schedule
        self._by_id: dict[int, tuple[PodShape, ShapeTraits]] = {}
        self._by_shape: dict[PodShape, ShapeTraits] = {}
        self._relaxed: dict[int, PodShape | None] = {}
        self._labels: dict[tuple[str, Labels], int] = {}
        self._constraints: dict[tuple[object, ...], int] = {}
        self._tolerances: dict[tuple[Toleration, ...], int] = {}
        self._demands: dict[tuple[object, ...], tuple[HostSplit, HostSplit]] = {}

    def of(self, shape: PodShape) -> ShapeTraits:
        """The traits of a shape."""
        known = self._by_id.get(id(shape))
        if known is not None:
            return known[1]
        found = self._by_shape.get(shape)
        if found is None:
            found = self._by_shape[shape] = self._created(shape)
        self._by_id[id(shape)] = shape, found
        return found

    def relaxed(self, traits: ShapeTraits) -> PodShape | None:
        """The shape with the next soft constraint dropped; None if there is none."""
        if traits.number not in self._relaxed:
            self._relaxed[traits.number] = relaxed(traits.shape, self._tolerate)
        return self._relaxed[traits.number]

    def _created(self, shape: PodShape) -> ShapeTraits:
        labels, constraints = (shape.namespace, shape.labels), constraints_of(shape)
        wanted, strict = self._node_demands(shape)
        return ShapeTraits(
            len(self._by_shape),
            shape,
            self._axis.vector(dict(shape.requests)),
            wanted,
            strict,
            tuple(self._split(self._algebra.of(t)) for t in shape.volume_topologies),
            self._labels.setdefault(labels, len(self._labels)),
            self._constraints.setdefault(constraints, len(self._constraints)),
            self._tolerances.setdefault(shape.tolerations, len(self._tolerances)),
        )

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
