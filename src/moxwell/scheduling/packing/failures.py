"""
Why a pod does not fit a place: values that keep the facts; the text is built when it is read.

The texts are those of Karpenter, so that events and logs read the same.
"""

from dataclasses import dataclass
from typing import Protocol

from moxwell.api.core.nodes import Taint
from moxwell.scheduling.packing.resource_axis import ResourceAxis, Vector, plus
from moxwell.scheduling.packing.topology_groups import TopologyGroup
from moxwell.scheduling.packing.type_table import TypeTable
from moxwell.scheduling.requirement_sets import RequirementMismatch, RequirementSet
from moxwell.scheduling.requirements import LabelRequirement, RequirementOperator
from moxwell.scheduling.resource_lists import CPU, ResourceList, resources_text, total
from moxwell.scheduling.taints import taint_text

_SHOWN_DOMAINS = 25
_MILLION_CORES = 10**9


class PlacementFailure(Protocol):
    """Why one place does not fit; ``str`` is the sentence."""

    @property
    def waits_for_reservation(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Failure:
    @property
    def waits_for_reservation(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class UntoleratedTaints(_Failure):
    taints: tuple[Taint, ...]

    def __str__(self) -> str:
        return "; ".join(f"did not tolerate taint (taint={taint_text(t)})" for t in self.taints)


@dataclass(frozen=True, slots=True)
class IncompatibleRequirements(_Failure):
    """``what`` names the source of the requirements in the sentence."""

    mismatches: tuple[RequirementMismatch, ...]
    what: str = "incompatible requirements, "

    def __str__(self) -> str:
        return self.what + "; ".join(map(str, self.mismatches))


@dataclass(frozen=True, slots=True)
class UnsatisfiableTopology(_Failure):
    """A topology group allows no domain; the counts are those at the end of the run."""

    group: TopologyGroup
    pod: LabelRequirement | None
    node: LabelRequirement | None

    def __str__(self) -> str:
        key, kind = self.group.key, self.group.rule.type
        shown = [f"{d}: {c}" for d, c in sorted(self.group.counts.items())]
        rest = len(shown) - _SHOWN_DOMAINS
        counts = ", ".join(shown[:_SHOWN_DOMAINS]) + (f" and {rest} other(s)" if rest > 0 else "")
        any_value = f"{key} {RequirementOperator.EXISTS}"
        return (
            f"unsatisfiable topology constraint for {kind}, key={key} (counts = {counts}, "
            f"podDomains = {self.pod or any_value}, nodeDomains = {self.node or any_value}"
        )


@dataclass(frozen=True, slots=True)
class TypeSearch:
    """The question that no instance type answered; ``groups`` are types with daemon requests."""

    table: TypeTable
    axis: ResourceAxis
    options: int
    requirements: RequirementSet
    requests: Vector
    pod: ResourceList
    groups: tuple[tuple[int, Vector | None], ...]


@dataclass(frozen=True, slots=True)
class NoHostRoom(_Failure):
    """No host has room for any of the types that hold the pods, beside the other new nodes."""

    cheapest: str

    def __str__(self) -> str:
        return (
            f"no host has room for {self.cheapest}, the cheapest instance type that holds the "
            "pods, beside the other new nodes"
        )


@dataclass(frozen=True, slots=True)
class NoInstanceType(_Failure):
    """No instance type of the pool meets requirements, resources and offering at once."""

    search: TypeSearch
    missing_values: tuple[str, ...] = ()

    @property
    def flags(self) -> tuple[int, int, int]:
        """Types that meet the requirements, have the resources, and have an offering."""
        search = self.search
        usable = sum(mask for mask, _ in search.groups) & search.options
        room = 0
        for mask, overhead in search.groups:
            request = plus(search.requests, overhead) if overhead else search.requests
            room |= search.table.fitting(request) & mask & search.options
        offered = search.table.offered(search.requirements) & usable
        # a type without a compatible offering counts as one without room, as in Karpenter
        return search.table.compatible(search.requirements) & usable, room & offered, offered

    def __str__(self) -> str:
        detail = f", requirements={self.search.requirements}, resources={self._resources()}"
        if self.missing_values:
            labels = " ".join(self.missing_values)
            return f"minValues requirement is not met for label(s) (label(s)=[{labels}]){detail}"
        sentence = _sentence(*self.flags)
        return sentence + detail + (self._typo_hint() if sentence.endswith("resources") else "")

    def _resources(self) -> str:
        overheads = [o for _, o in self.search.groups if o]
        if not overheads:
            return self._with(self.search.axis.zero)
        low = self._with(tuple(map(min, zip(*overheads, strict=True))))
        high = self._with(tuple(map(max, zip(*overheads, strict=True))))
        return low if low == high else f"min={low}, max={high}"

    def _with(self, overhead: Vector) -> str:
        """What the pod requests together with daemon pods."""
        both = total((self.search.pod, self.search.axis.amounts(overhead)))
        return resources_text({name: amount for name, amount in both.items() if amount})

    def _typo_hint(self) -> str:
        if self.search.pod.get(CPU, 0) < _MILLION_CORES:
            return ""
        return " (CPU request >= 1 Million, m vs M typo?)"


def _sentence(met: int, room: int, offered: int) -> str:
    reasons = {
        (False, False, False): "met the scheduling requirements or had enough resources or had a"
        " required offering",
        (False, False, True): "met the scheduling requirements or had enough resources",
        (False, True, False): "met the scheduling requirements or had a required offering",
        (True, False, False): "had enough resources or had a required offering",
        (False, True, True): "met all requirements",
        (True, False, True): "has enough resources",
        (True, True, False): "has the required offering",
    }
    found = reasons.get((bool(met), bool(room), bool(offered)))
    if found is not None:
        return f"no instance type {found}"
    if met & room & ~offered:
        return (
            "no instance type which met the scheduling requirements and had enough resources, had a"
            " required offering"
        )
    if room & offered & ~met:
        return (
            "no instance type which had enough resources and the required offering met the"
            " scheduling requirements"
        )
    if met & offered & ~room:
        return (
            "no instance type which met the scheduling requirements and the required offering had"
            " the required resources"
        )
    return "no instance type met the requirements/resources/offering tuple"


@dataclass(frozen=True, slots=True)
class ReservationUnavailable(_Failure):
    """The compatible reservations are used up, or adding the pod would give up the last one."""

    gives_up: bool = False

    @property
    def waits_for_reservation(self) -> bool:
        return True

    def __str__(self) -> str:
        if self.gives_up:
            return (
                "satisfying updated nodeclaim constraints would remove all compatible reserved"
                " offering options"
            )
        return (
            "one or more instance types with compatible reserved offerings are available, but could"
            " not be reserved"
        )


@dataclass(frozen=True, slots=True)
class LimitsReached(_Failure):
    """The limits of a node pool leave no room; ``nodes`` if it is the number of nodes."""

    pool: str
    nodes: bool = False

    def __str__(self) -> str:
        if self.nodes:
            return f"node limits have been exhausted for nodepool (NodePool={self.pool})"
        return f"all available instance types exceed limits for nodepool (NodePool={self.pool})"


@dataclass(frozen=True, slots=True)
class NodeFull(_Failure):
    """An existing node has too little of a resource left."""

    def __str__(self) -> str:
        return "exceeds node resources"


@dataclass(frozen=True, slots=True)
class HostPortTaken(_Failure):
    def __str__(self) -> str:
        return "checking host port usage, pod hostport conflicts with existing hostport"


@dataclass(frozen=True, slots=True)
class VolumeLimitReached(_Failure):
    driver: str
    count: int
    limit: int

    def __str__(self) -> str:
        return (
            "checking volume usage, would exceed volume limit "
            f"(provisioner={self.driver}, volume-count={self.count}, volume-limit={self.limit})"
        )


@dataclass(frozen=True, slots=True)
class PodFailure:
    """Why a pod got no node: one failure per node pool that was tried, in that order."""

    attempts: tuple[tuple[str, PlacementFailure], ...]

    @property
    def is_deferred(self) -> bool:
        """Whether the pod only waits for reserved capacity."""
        return any(failure.waits_for_reservation for _, failure in self.attempts)

    def __str__(self) -> str:
        if not self.attempts:
            return "nodepool requirements filtered out all available instance types"
        return "; ".join(str(failure) for _, failure in self.attempts)
