"""From filled claims to planned ones: reservations, daemon requests, order and number of types."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from moxwell.scheduling.packing.claims import NewClaim
from moxwell.scheduling.packing.cluster import SolverOptions
from moxwell.scheduling.packing.failures import PlacementFailure, PodFailure
from moxwell.scheduling.packing.host_ledger import HostLedger, HostSlot
from moxwell.scheduling.packing.results import PlannedClaim, SchedulingResult
from moxwell.scheduling.requirement_sets import RequirementAlgebra, RequirementSet
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.scheduling.resource_lists import smallest
from moxwell.scheduling.well_known_labels import CAPACITY_TYPE, RESERVED


@dataclass(frozen=True, slots=True)
class MinValuesUnmet:
    """The cheapest instance types do not cover the ``minValues`` of the pool."""

    pool: str
    labels: tuple[str, ...]

    @property
    def waits_for_reservation(self) -> bool:
        return False

    def __str__(self) -> str:
        return (
            "pod didn't schedule because NodePool couldn't meet minValues requirements, validating "
            "minValues, minValues requirement is not met for label(s) "
            f"(label(s)=[{' '.join(self.labels)}], NodePool={self.pool})"
        )


def finished(
    algebra: RequirementAlgebra,
    reservation_label: str,
    options: SolverOptions,
    claims: Iterable[NewClaim],
    hosts: HostLedger | None,
    partial: SchedulingResult,
) -> SchedulingResult:
    """
    The result with its claims; pods of a claim that cannot be launched fail.

    As in Karpenter, the claims of a pool share the annotation that ``minValues`` was lowered: the
    value of the last claim applies to all of them.
    """
    planned: list[PlannedClaim] = []
    failures = dict(partial.failures)
    created = tuple(claims)
    relaxed = {c.template.number: c.min_values_relaxed for c in created}
    for claim in created:
        each = _planned(algebra, reservation_label, options, claim)
        each = replace(each, min_values_relaxed=relaxed[claim.template.number])
        if hosts is not None and claim.slot is not None:
            each = _on_host(each, claim, hosts, claim.slot)
        missing = _missing(each, options)
        if not missing:
            planned.append(each)
            continue
        unmet: PlacementFailure = MinValuesUnmet(each.pool, missing)
        failures |= {p.uid: PodFailure(((each.pool, unmet),)) for p in each.pods}
    return replace(partial, claims=tuple(planned), failures=failures)


def _on_host(
    planned: PlannedClaim, claim: NewClaim, hosts: HostLedger, slot: HostSlot
) -> PlannedClaim:
    """The claim with its slot, without the types that no host can hold beside other claims."""
    refusals = hosts.refusals(claim.demand, slot)
    kept = hosts.launchable(claim.demand)
    if planned.table.missing_values(kept, planned.requirements):
        kept = planned.types
    return replace(planned, types=kept, slot=slot, other_hosts=refusals)


def _planned(
    algebra: RequirementAlgebra, reservation_label: str, options: SolverOptions, claim: NewClaim
) -> PlannedClaim:
    return PlannedClaim(
        claim.template.pool.name,
        tuple(claim.pods),
        _with_reservations(algebra, reservation_label, claim),
        claim.options,
        claim.template.table,
        options.max_instance_types,
        daemon_requests(claim),
        passed_over=claim.passed_over,
    )


def _with_reservations(algebra: RequirementAlgebra, label: str, claim: NewClaim) -> RequirementSet:
    if not claim.reserved:
        return claim.requirements
    held = frozenset(o.reservation for o in claim.reserved)
    reserved = LabelRequirement(CAPACITY_TYPE, False, frozenset({RESERVED}))
    wanted = algebra.with_requirement(claim.requirements, reserved)
    return algebra.intersection(wanted, algebra.of((LabelRequirement(label, False, held),)))


def daemon_requests(claim: NewClaim) -> dict[str, int]:
    """What daemon pods request at least on any of the claim's types."""
    least: dict[str, int] = {}
    for group in claim.template.daemons:
        if group.types & claim.options:
            own = dict(group.requests)
            least = smallest(least, own) if least else own
    return least


def _missing(claim: PlannedClaim, options: SolverOptions) -> tuple[str, ...]:
    if options.best_effort_min_values or not claim.requirements.min_values:
        return ()
    mask = sum(1 << i for i in claim.options)
    return tuple(sorted(claim.table.missing_values(mask, claim.requirements)))
