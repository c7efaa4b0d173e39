"""New node claims while a run fills them, and the check whether a pod fits one."""

from dataclasses import dataclass, replace

from moxwell.scheduling.packing.bins import NodeRules
from moxwell.scheduling.packing.cluster import SolverOptions
from moxwell.scheduling.packing.failures import (
    NoHostRoom,
    NoInstanceType,
    PlacementFailure,
    ReservationUnavailable,
    TypeSearch,
    UntoleratedTaints,
)
from moxwell.scheduling.packing.host_ledger import ClaimDemand, HostLedger, HostSlot
from moxwell.scheduling.packing.instance_types import Offering
from moxwell.scheduling.packing.pod_classes import PodClass
from moxwell.scheduling.packing.pods import HostPort, PodDemand
from moxwell.scheduling.packing.reservations import ReservationLedger
from moxwell.scheduling.packing.resource_axis import ResourceAxis, Vector, plus
from moxwell.scheduling.packing.templates import ClaimTemplate
from moxwell.scheduling.packing.type_table import bits
from moxwell.scheduling.requirement_sets import RequirementSet
from moxwell.scheduling.well_known_labels import RESERVED


@dataclass(frozen=True, slots=True)
class ClaimPlacement:
    """The state of a node claim after a pod was added."""

    requirements: RequirementSet
    options: int
    requests: Vector
    reserved: tuple[Offering, ...] = ()
    slot: HostSlot | None = None


class NewClaim:
    """A node claim under construction."""

    __slots__ = (
        "host",
        "number",
        "options",
        "passed_over",
        "pods",
        "ports",
        "requests",
        "requirements",
        "reserved",
        "slot",
        "template",
        "volumes",
    )

    def __init__(self, number: int, template: ClaimTemplate, options: int, zero: Vector) -> None:
        self.number = number
        self.template = template
        self.host = f"hostname-placeholder-{number:04}"
        self.requirements = template.requirements
        self.options = options
        self.requests = zero
        self.reserved: tuple[Offering, ...] = ()
        self.pods: list[PodDemand] = []
        self.ports: list[HostPort] = []
        self.volumes: frozenset[tuple[str, str]] = frozenset()
        self.slot: HostSlot | None = None
        self.passed_over: tuple[tuple[str, PlacementFailure], ...] = ()

    def add(self, pod: PodDemand, placement: ClaimPlacement) -> None:
        self.pods.append(pod)
        self.requirements = placement.requirements
        self.options = placement.options
        self.requests = placement.requests
        self.reserved = placement.reserved
        self.slot = placement.slot
        self.ports += pod.shape.host_ports
        if pod.shape.volumes:
            self.volumes |= frozenset(pod.shape.volumes)

    @property
    def demand(self) -> ClaimDemand:
        """What the claim may become."""
        return claim_demand(self, self.options, self.requirements)

    @property
    def min_values_relaxed(self) -> bool:
        """Whether a ``minValues`` of the pool was lowered."""
        return any(
            (now := self.requirements.get(r.key)) is not None
            and (now.min_values or 0) < (r.min_values or 0)
            for r in self.template.requirements.min_values
        )


def claim_demand(claim: NewClaim, types: int, requirements: RequirementSet) -> ClaimDemand:
    """What a claim would be with other types and requirements."""
    template = claim.template
    return ClaimDemand(claim.number, template.pool.name, template.table, types, requirements)


class ClaimRules:
    """The check whether a pod fits a new node claim."""

    def __init__(
        self,
        rules: NodeRules,
        axis: ResourceAxis,
        reservations: ReservationLedger,
        options: SolverOptions,
        hosts: HostLedger | None = None,
    ) -> None:
        self._rules = rules
        self._axis = axis
        self._hosts = hosts
        self._reservations = reservations
        self._options = options

    def fit(
        self, claim: NewClaim, pod: PodClass, relax_min_values: bool
    ) -> ClaimPlacement | PlacementFailure:
        """The claim with the pod, or why the pod does not fit."""
        if taints := pod.untolerated(claim.template.pool.taints):
            return UntoleratedTaints(taints)
        base = self._rules.admitted(claim.requirements, claim.host, pod, lenient=True)
        if not isinstance(base, RequirementSet):
            return base
        if not pod.volumes:
            return self._fit_topology(claim, pod, base, relax_min_values)
        result: ClaimPlacement | PlacementFailure | None = None
        for volume in pod.volumes:
            narrowed = self._rules.with_volume(base, claim.host, volume, lenient=True)
            if not isinstance(narrowed, RequirementSet):
                result = narrowed
                continue
            result = self._fit_topology(claim, pod, narrowed, relax_min_values)
            if isinstance(result, ClaimPlacement):
                break
        assert result is not None
        return result

    def _fit_topology(
        self, claim: NewClaim, pod: PodClass, base: RequirementSet, relax: bool
    ) -> ClaimPlacement | PlacementFailure:
        if pod.host_groups or pod.domain_groups:
            narrowed = self._rules.with_topology(base, claim.host, pod, lenient=True)
            if not isinstance(narrowed, RequirementSet):
                return narrowed
            base = narrowed
        return self._fit_types(claim, pod, base, relax)

    def _fit_types(
        self, claim: NewClaim, pod: PodClass, wanted: RequirementSet, relax: bool
    ) -> ClaimPlacement | PlacementFailure:
        table = claim.template.table
        requests = plus(claim.requests, pod.requests)
        remaining = claim.options & table.usable(wanted)
        if claim.template.plain and not pod.shape.host_ports:
            remaining &= table.fitting(requests)
        else:
            remaining &= self._fitting(claim, pod, requests)
        if pod.shape.volumes:
            remaining &= table.attachable(claim.volumes | frozenset(pod.shape.volumes))
        if wanted.min_values and (missing := table.missing_values(remaining, wanted)):
            if not relax:
                return NoInstanceType(self._search(claim, pod, wanted), tuple(sorted(missing)))
            for key, count in missing.items():
                lowered = wanted.entries[key].with_min_values(count)
                wanted = self._rules.algebra.with_requirement(wanted, lowered)
        if not remaining:
            return NoInstanceType(self._search(claim, pod, wanted))
        found = self._reserve(claim, ClaimPlacement(wanted, remaining, requests))
        if self._hosts is None or not isinstance(found, ClaimPlacement):
            return found
        return self._hosted(self._hosts, claim, found)

    def _hosted(
        self, hosts: HostLedger, claim: NewClaim, found: ClaimPlacement
    ) -> ClaimPlacement | PlacementFailure:
        """The placement with a slot on a host."""
        demand = claim_demand(claim, found.options, found.requirements)
        slot = hosts.slot(demand)
        if slot is None:
            table = claim.template.table
            cheapest = table.cheapest_first(found.options, found.requirements)[0]
            return NoHostRoom(table.types[cheapest].name)
        return replace(found, slot=slot)

    def _fitting(self, claim: NewClaim, pod: PodClass, requests: Vector) -> int:
        """Types with room for pods and daemon pods, and whose host ports are free."""
        found = 0
        for types, overhead in self._groups(claim, pod):
            request = requests if overhead is None else plus(requests, overhead)
            found |= types & claim.template.table.fitting(request)
        return found

    def _groups(self, claim: NewClaim, pod: PodClass) -> tuple[tuple[int, Vector | None], ...]:
        """The daemon groups whose host ports do not conflict with the pod's."""
        wanted = pod.shape.host_ports
        return tuple(
            (group.types, group.overhead)
            for group in claim.template.daemons
            if not any(w.conflicts(p) for w in wanted for p in (*group.ports, *claim.ports))
        )

    def _search(self, claim: NewClaim, pod: PodClass, wanted: RequirementSet) -> TypeSearch:
        template = claim.template
        requests = plus(claim.requests, pod.requests)
        groups = self._groups(claim, pod)
        own = dict(pod.shape.requests)
        return TypeSearch(template.table, self._axis, claim.options, wanted, requests, own, groups)

    def _reserve(
        self, claim: NewClaim, placement: ClaimPlacement
    ) -> ClaimPlacement | PlacementFailure:
        """The placement with the reservations that the claim can hold."""
        table = claim.template.table
        if not self._options.reserved_capacity or not table.reserved:
            return placement
        compatible = [
            offering
            for index in bits(placement.options & table.reserved)
            for offering in table.launchable(index, placement.requirements)
            if offering.capacity_type == RESERVED
        ]
        held = tuple(o for o in compatible if self._reservations.can_hold(claim.number, o))
        if self._options.reserved_strict and not held and (compatible or claim.reserved):
            return ReservationUnavailable(gives_up=not compatible)
        return ClaimPlacement(placement.requirements, placement.options, placement.requests, held)
