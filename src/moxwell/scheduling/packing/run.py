"""One run of the solver: the state of nodes, claims and topology while pods are placed."""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice, product
from math import inf
from typing import TYPE_CHECKING

from moxwell.api.core.nodes import Taint
from moxwell.scheduling.packing.claim_index import ClaimIndex, Numbers
from moxwell.scheduling.packing.claim_order import ClaimOrder
from moxwell.scheduling.packing.claims import ClaimPlacement, ClaimRules, NewClaim
from moxwell.scheduling.packing.existing_index import ExistingNodes
from moxwell.scheduling.packing.failures import LimitsReached, PlacementFailure, PodFailure
from moxwell.scheduling.packing.finish import finished
from moxwell.scheduling.packing.host_ledger import HostLedger
from moxwell.scheduling.packing.nodes import ClusterNode
from moxwell.scheduling.packing.pod_classes import PodClass, PodClasses
from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.packing.reservations import ReservationLedger
from moxwell.scheduling.packing.results import SchedulingResult
from moxwell.scheduling.packing.templates import ClaimTemplate
from moxwell.scheduling.packing.topology import Topology
from moxwell.scheduling.packing.topology_groups import TopologyGroup
from moxwell.scheduling.requirement_sets import RequirementSet
from moxwell.scheduling.resource_lists import MILLI, NODES

if TYPE_CHECKING:
    from moxwell.scheduling.packing.solver import Solver


_Fit = tuple[int, NewClaim, ClaimPlacement]  # place in the order, claim, and the claim with the pod
_MOST_TURNS = 16  # choices among equal domains that are tried for a pod
_MOST_COMPARED = 256  # claims whose price is compared for a pod, fullest first


class PlacementPolicy(Enum):
    """Which of the new node claims that fit a pod joins."""

    FEWEST_PODS = (
        "exact"  # Karpenter's: the first, fewest pods first; a new claim only if none fits
    )
    LEAST_INCREASE = "least increase"  # the one whose price grows least, or a new one if cheaper
    FULLEST = "fullest"  # the one with the most pods; a new claim only if none fits


def charge(limits: dict[str, int], node: ClusterNode, times: int = 1) -> None:
    """Take a node from what the limits of its pool leave, or give it back."""
    for name in limits:
        limits[name] -= times * (MILLI if name == NODES else node.capacity.get(name, 0))


class SolverRun:
    """Places pods one at a time."""

    def __init__(
        self,
        solver: "Solver",
        pods: Sequence[PodDemand],
        removed: frozenset[str],
        held: frozenset[str],
        policy: PlacementPolicy,
        turn: int,
        within_hosts: bool = False,
        wanted: Mapping[int, int] | None = None,
    ) -> None:
        options = solver.options
        uids = frozenset(p.uid for p in pods)
        self._solver = solver
        self._policy = policy
        self._turn = turn
        self._wanted = wanted or {}
        self._topology = Topology(solver.topology, uids, removed, options.ignore_preferences, turn)
        self._classes = PodClasses(solver.shapes, self._topology)
        self._nodes = ExistingNodes(solver.nodes, removed, held)
        self._claims: list[NewClaim] = []
        self._order = ClaimOrder()
        self._index = ClaimIndex(solver.rules, len(solver.axis.zero))
        self._reservations = ReservationLedger(solver.reservations)
        self._hosts = HostLedger(solver.rooms) if within_hosts and solver.rooms else None
        self._fit = ClaimRules(solver.rules, solver.axis, self._reservations, options, self._hosts)
        self._limits = self._remaining_limits(removed)
        self._failures: dict[str, PodFailure] = {}
        self._attached: set[int] = set()
        self._prepare(pods)

    def _prepare(self, pods: Sequence[PodDemand]) -> None:
        """Create the topology groups of all pods before the first is placed."""
        classes = dict.fromkeys(
            self._classes.of(p.shape) for p in sorted(pods, key=lambda p: p.key)
        )
        for each in classes:
            self._classes.create_groups(each)
        for each in classes:
            self._attach(each)

    def _attach(self, pod_class: PodClass) -> None:
        if pod_class.number not in self._attached:
            self._attached.add(pod_class.number)
            self._classes.attach(pod_class)

    def _remaining_limits(self, removed: frozenset[str]) -> dict[str, dict[str, int]]:
        """What the limits of each pool leave beside its existing nodes."""
        left = {name: dict(limits) for name, limits in self._solver.limits.items()}
        for node in self._solver.nodes.named(removed):
            if node.pool in left:
                charge(left[node.pool], node, -1)
        return left

    def schedule(self, pod: PodDemand) -> bool:
        """Place a pod, dropping its soft constraints one by one; False if it fits nowhere."""
        pod_class: PodClass | None = self._classes.of(pod.shape)
        while pod_class is not None:
            failure = self._place_in_any_domain(pod, pod_class)
            if failure is None:
                self._failures.pop(pod.uid, None)
                return True
            self._failures[pod.uid] = failure
            if failure.is_deferred:
                break
            pod_class = self._classes.relaxed(pod_class)
            if pod_class is not None:
                self._attach(pod_class)
        return False

    def _place_in_any_domain(self, pod: PodDemand, pod_class: PodClass) -> PodFailure | None:
        """Place a pod; where several domains are equal, the next is tried if one cannot be."""
        failure = self._place(pod, pod_class)
        groups = [g for g, _ in pod_class.domain_groups if g.tied > 1]
        if not groups:
            return failure
        if failure is not None:
            for turns in islice(product(*(range(g.tied) for g in groups)), 1, _MOST_TURNS):
                for group, turn in zip(groups, turns, strict=True):
                    group.turn = self._turn + turn
                if self._place(pod, pod_class) is None:
                    failure = None
                    break
        for group in groups:
            group.turn, group.tied = self._turn, 1
        return failure

    def _place(self, pod: PodDemand, pod_class: PodClass) -> PodFailure | None:
        if self._to_existing(pod, pod_class):
            return None
        if self._policy is PlacementPolicy.FEWEST_PODS:
            if self._to_claim(pod, pod_class):
                return None
        elif self._to_best_claim(pod, pod_class):
            return None
        return self._to_new_claim(pod, pod_class)

    def _to_existing(self, pod: PodDemand, pod_class: PodClass) -> bool:
        free = pod.phase == "Pending" or pod.node_name in self._solver.deleting
        for each in self._nodes.candidates(pod_class.requests, ignore_hold=free):
            found = each.fit(pod_class, self._solver.rules)
            if isinstance(found, RequirementSet):
                each.add(pod, pod_class.requests, found)
                self._nodes.added(each, pod_class.requests)
                self._record(pod_class, each.base.host, each.base.taints, found)
                return True
        return False

    def _to_claim(self, pod: PodDemand, pod_class: PodClass) -> bool:
        for place, claim in self._index.candidates(self._order.sort(), pod_class):
            found = self._fit.fit(claim, pod_class, relax_min_values=False)
            if isinstance(found, ClaimPlacement):
                self._add(claim, pod, pod_class, found)
                self._order.grew(place)
                return True
        return False

    def _to_best_claim(self, pod: PodDemand, pod_class: PodClass) -> bool:
        """Join the best claim by the policy, unless a new one is cheaper."""
        order = self._order.sort()[::-1]
        fitting = self._fitting(order, pod_class)
        if self._policy is PlacementPolicy.FULLEST:
            best = next(fitting, None)
        else:
            best = self._least_increase(fitting, pod_class)
        if best is None:
            return False
        place, claim, placement = best
        self._add(claim, pod, pod_class, placement)
        self._order.grew(len(order) - 1 - place)
        return True

    def _least_increase(self, fitting: Iterator[_Fit], pod_class: PodClass) -> _Fit | None:
        """The claim whose price the pod raises least; None if a new one is cheaper."""
        best: _Fit | None = None
        least = inf
        for found in islice(fitting, _MOST_COMPARED):
            increase = self._increase(found[1], found[2])
            if increase < least:
                best, least = found, increase
            if least <= 0:
                return best  # a price never falls, so a new claim is not cheaper either
        if best is None or least > self._price_of_new(pod_class):
            return None
        return best

    def _fitting(self, order: Numbers, pod_class: PodClass) -> Iterator[_Fit]:
        for place, claim in self._index.candidates(order, pod_class):
            found = self._fit.fit(claim, pod_class, relax_min_values=False)
            if isinstance(found, ClaimPlacement) and not self._outgrows(claim, found):
                yield place, claim, found

    def _outgrows(self, claim: NewClaim, found: ClaimPlacement) -> bool:
        """Whether a claim that can be one of the wanted types no longer could."""
        wanted = self._wanted.get(claim.template.number, 0)
        return bool(claim.options & wanted) and not found.options & wanted

    def _increase(self, claim: NewClaim, found: ClaimPlacement) -> float:
        """By how much the price of a claim grows."""
        table = claim.template.table
        before = table.cheapest_price(claim.options, claim.requirements)
        return round(table.cheapest_price(found.options, found.requirements) - before, 9)

    def _price_of_new(self, pod_class: PodClass) -> float:
        """The price of a claim for the pod alone; infinite if there can be none."""
        for template in self._solver.templates:
            found = self._from_template(template, pod_class)
            if isinstance(found, tuple):
                return template.table.cheapest_price(found[1].options, found[1].requirements)
        return inf

    def _to_new_claim(self, pod: PodDemand, pod_class: PodClass) -> PodFailure | None:
        """Create a claim of the first pool that can; the failures of all pools if none can."""
        failures: list[tuple[str, PlacementFailure]] = []
        for template in self._solver.templates:
            found = self._from_template(template, pod_class)
            if isinstance(found, tuple):
                claim, placement = found
                claim.passed_over = tuple(failures)
                self._claims.append(claim)
                self._order.append(claim.number)
                self._add(claim, pod, pod_class, placement)
                self._charge(claim)
                return None
            failures.append((template.pool.name, found))
            if found.waits_for_reservation:
                break
        return PodFailure(tuple(failures))

    def _from_template(
        self, template: ClaimTemplate, pod_class: PodClass
    ) -> tuple[NewClaim, ClaimPlacement] | PlacementFailure:
        limits = self._limits[template.pool.name]
        if limits.get(NODES) == 0:
            return LimitsReached(template.pool.name, nodes=True)
        options = template.options & template.table.within(limits) if limits else template.options
        if not options:
            return LimitsReached(template.pool.name)
        claim = NewClaim(len(self._claims), template, options, self._solver.axis.zero)
        relax = self._solver.options.best_effort_min_values
        found = self._fit.fit(claim, pod_class, relax)
        return (claim, found) if isinstance(found, ClaimPlacement) else found

    def _add(
        self, claim: NewClaim, pod: PodDemand, pod_class: PodClass, placement: ClaimPlacement
    ) -> None:
        claim.add(pod, placement)
        taints = claim.template.pool.taints
        groups = self._record(pod_class, claim.host, taints, placement.requirements)
        self._index.update(claim, groups)
        if claim.template.table.reserved:
            self._reservations.hold(claim.number, placement.reserved)
        if self._hosts is not None:
            self._hosts.hold(claim.number, placement.slot)

    def _record(
        self, pod_class: PodClass, host: str, taints: tuple[Taint, ...], found: RequirementSet
    ) -> list[TopologyGroup]:
        """Count a placed pod; the groups of host names that may have counted it."""
        groups = self._classes.recording_groups(pod_class)
        if not groups and not pod_class.inverse_owned:
            return groups
        self._solver.rules.record(pod_class, groups, host, taints, found)
        return [g for g in (*groups, *pod_class.inverse_owned) if g.is_host]

    def _charge(self, claim: NewClaim) -> None:
        """Charge the limits of a pool with the largest capacity among a claim's options."""
        limits = self._limits[claim.template.pool.name]
        if limits:
            largest = claim.template.table.largest_capacity(claim.options, limits)
            for name, amount in largest.items():
                limits[name] -= amount

    def result(self) -> SchedulingResult:
        """The decisions so far."""
        existing = self._nodes.pods()
        return finished(
            self._solver.algebra,
            self._solver.snapshot.rules.reservation,
            self._solver.options,
            self._claims,
            self._hosts,
            SchedulingResult(existing=existing, failures=dict(self._failures)),
        )
