"""Which nodes count for a topology spread constraint: nodeAffinityPolicy and nodeTaintsPolicy."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from moxwell.api.core.nodes import Taint
from moxwell.api.core.pods import Toleration
from moxwell.scheduling.packing.pods import PodShape, SpreadConstraint
from moxwell.scheduling.requirement_sets import RequirementAlgebra, RequirementSet
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.scheduling.taints import untolerated
from moxwell.scheduling.well_known_labels import HOSTNAME

HONOR = "Honor"


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """The node terms (one must match) and tolerations of a pod, as far as a policy honors them."""

    terms: tuple[RequirementSet, ...]
    taints_policy: str
    affinity_policy: str
    tolerations: tuple[Toleration, ...]

    @property
    def identity(self) -> tuple[object, ...]:
        """
        What Karpenter hashes: of node terms only the labels, not their values.

        An element that occurs twice in a list cancels out.
        """
        labels = _odd(frozenset(term.entries) for term in self.terms)
        return labels, self.taints_policy, self.affinity_policy, _odd(self.tolerations)

    @property
    def admits_all(self) -> bool:
        """Whether every node counts."""
        if self.taints_policy == HONOR:
            return False
        return self.affinity_policy != HONOR or not all(term.entries for term in self.terms)

    def matches(
        self,
        algebra: RequirementAlgebra,
        taints: Iterable[Taint],
        requirements: RequirementSet,
        hostname: str,
    ) -> bool:
        """Whether a node with these taints and requirements counts."""
        if self.taints_policy == HONOR and untolerated(taints, self.tolerations):
            return False
        if self.affinity_policy != HONOR or not self.terms:
            return True
        return any(serves(algebra, requirements, t, hostname, lenient=False) for t in self.terms)


def serves(
    algebra: RequirementAlgebra,
    node: RequirementSet,
    wanted: RequirementSet,
    hostname: str,
    *,
    lenient: bool,
) -> bool:
    """Whether a node, whose host name is kept apart from its requirements, serves a set."""
    host: LabelRequirement | None = wanted.get(HOSTNAME)
    if host is None:
        return not algebra.mismatches(node, wanted, lenient=lenient)
    rest = algebra.without(wanted, HOSTNAME)
    return host.has(hostname) and not algebra.mismatches(node, rest, lenient=lenient)


def node_filter(
    algebra: RequirementAlgebra, shape: PodShape, constraint: SpreadConstraint
) -> NodeFilter:
    """The filter of a spread constraint of a pod."""
    selector = algebra.of_labels(shape.node_selector)
    terms = tuple(algebra.of((*selector.entries.values(), *term)) for term in shape.required_terms)
    return NodeFilter(
        terms or (selector,),
        constraint.node_taints_policy,
        constraint.node_affinity_policy,
        shape.tolerations,
    )


def _odd(items: Iterable[object]) -> frozenset[object]:
    return frozenset(item for item, count in Counter(items).items() if count % 2)
