"""
Arrays over new node claims that rule out, without looking at each, claims that a pod cannot join.

The index only skips claims that certainly fail: too little room in the largest remaining type,
requirements or taints that conflict, or a host name that a topology group closes. Whether one of
the rest fits is decided by :class:`~moxwell.scheduling.packing.claims.ClaimRules`.
"""

from collections.abc import Iterator
from operator import gt, sub

import numpy as np
from numpy.typing import NDArray

from moxwell.scheduling.packing.bins import NodeRules
from moxwell.scheduling.packing.claims import NewClaim
from moxwell.scheduling.packing.pod_classes import PodClass
from moxwell.scheduling.packing.resource_axis import Vector
from moxwell.scheduling.packing.topology_groups import TopologyGroup, TopologyType
from moxwell.scheduling.requirement_sets import RequirementSet

_FIRST_ROOM = 64
_CHUNK = 512
_LOOKED_AT = 12  # claims that are looked at one by one before the arrays are asked
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


class HostGates:
    """For a topology group of host names: which claims it leaves open."""

    __slots__ = ("_of_new", "group", "number", "open", "selects")

    def __init__(self, group: TopologyGroup, selects: bool, room: int) -> None:
        self.group = group
        self.selects = selects
        self._of_new = self._allows(0)
        self.open: Flags = np.full(room, self._of_new, np.bool_)
        self.number = 0

    def append(self, number: int) -> None:
        """Add a claim that the group has not counted."""
        if number >= len(self.open):
            more = np.full(len(self.open), self._of_new, np.bool_)
            self.open = np.concatenate((self.open, more))
        self.number += self._of_new

    def refresh(self, claim: NewClaim) -> None:
        """Look again at a claim that got a pod."""
        is_open = self._allows(self.group.counts.get(claim.host, 0))
        self.number += is_open - int(self.open[claim.number])
        self.open[claim.number] = is_open

    def _allows(self, count: int) -> bool:
        match self.group.rule.type:
            case TopologyType.SPREAD:
                return count + self.selects <= self.group.rule.max_skew
            case TopologyType.ANTI_AFFINITY:
                return count == 0
        return count > 0


class ClaimIndex:
    """The claims of one run as arrays; a row is a claim number."""

    def __init__(self, rules: NodeRules, places: int) -> None:
        self._rules = rules
        self._claims: list[NewClaim] = []
        self._room: NDArray[np.int64] = np.zeros((places, _FIRST_ROOM), np.int64)
        self._kind: NDArray[np.int64] = np.zeros(_FIRST_ROOM, np.int64)
        self._kinds: dict[tuple[int, int], int] = {}
        self._samples: list[tuple[NewClaim, RequirementSet]] = []
        self._gates: dict[tuple[int, bool], HostGates] = {}
        self._gates_of: dict[int, list[HostGates]] = {}
        self._admitted: dict[tuple[int, int], Flags] = {}
        self._largest: list[tuple[int, Vector]] = []
        self._left: list[Vector] = []
        self._kind_numbers: list[int] = []
        self._changed: set[int] = set()

    def claim(self, number: int) -> NewClaim:
        """The claim with a number."""
        return self._claims[number]

    def update(self, claim: NewClaim, groups: list[TopologyGroup]) -> None:
        """Take over the state of a claim that got a pod, which the groups of host names counted."""
        if claim.number == len(self._claims):
            self._append(claim)
        options, largest = self._largest[claim.number]
        if options != claim.options:
            largest = claim.template.table.largest_allocatable(claim.options)
            self._largest[claim.number] = claim.options, largest
        self._left[claim.number] = tuple(map(sub, largest, claim.requests))
        self._kind_numbers[claim.number] = self._kind_of(claim)
        self._changed.add(claim.number)
        for group in groups:
            for gates in self._gates_of.get(id(group), ()):
                gates.refresh(claim)

    def _append(self, claim: NewClaim) -> None:
        self._claims.append(claim)
        self._largest.append((0, claim.requests))
        self._left.append(claim.requests)
        self._kind_numbers.append(0)
        if claim.number == self._room.shape[1]:
            self._room = np.concatenate((self._room, np.zeros_like(self._room)), axis=1)
            self._kind = np.concatenate((self._kind, np.zeros_like(self._kind)))
        for gates in self._gates.values():
            gates.append(claim.number)

    def _kind_of(self, claim: NewClaim) -> int:
        """Claims of one pool with the same requirements are of one kind."""
        key = (claim.template.number, claim.requirements.number)
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = len(self._kinds)
            self._samples.append((claim, claim.requirements))
        return found

    def candidates(self, order: Numbers, pod: PodClass) -> Iterator[tuple[int, NewClaim]]:
        """Place in the order and claim, for the claims that the pod may fit."""
        gates = self._gates_for(pod)
        if any(g.number == 0 for g in gates):
            return
        admitted = self._admitted_kinds(pod)
        closed: set[int] = set()
        yield from self._first(order[:_LOOKED_AT].tolist(), pod, gates, closed)
        start, size = _LOOKED_AT, _CHUNK
        while start < len(order):
            self._refresh_arrays()
            numbers = order[start : start + size]
            kinds = self._kind[numbers]
            found = admitted[kinds]
            for each in gates:
                found &= each.open[numbers]
            self._limit_room(found, numbers, pod.requests)
            for offset in self._in_domain(found, kinds, pod, closed):
                yield start + offset, self._claims[numbers[offset]]
            start, size = start + size, size * 4

    def _first(
        self, numbers: list[int], pod: PodClass, gates: list[HostGates], closed: set[int]
    ) -> Iterator[tuple[int, NewClaim]]:
        """
        The first claims, one by one: mostly one of them has room.

        The domains of a kind are looked at only after a claim of that kind was tried.
        """
        admitted = self._admitted_kinds(pod)
        request, tried = pod.requests, set[int]()
        for place, number in enumerate(numbers):
            kind = self._kind_numbers[number]
            if kind in closed or not admitted[kind] or any(map(gt, request, self._left[number])):
                continue
            if gates and not all(each.open[number] for each in gates):
                continue
            if kind in tried and pod.domain_groups and not self._is_open(kind, pod):
                closed.add(kind)
                continue
            tried.add(kind)
            yield place, self._claims[number]

    def _refresh_arrays(self) -> None:
        """Take over into the arrays what changed since they were last asked."""
        if self._changed:
            numbers = list(self._changed)
            self._room[:, numbers] = np.array([self._left[n] for n in numbers], np.int64).T
            self._kind[numbers] = [self._kind_numbers[n] for n in numbers]
            self._changed.clear()

    def _in_domain(
        self, found: Flags, kinds: Numbers, pod: PodClass, closed: set[int]
    ) -> Iterator[int]:
        """The claims whose kind the topology domains leave open; looks at a kind when it comes."""
        if not pod.domain_groups:
            yield from found.nonzero()[0].tolist()
            return
        known: set[int] = set()
        for kind in closed:
            found &= kinds != kind
        offset = int(found.argmax()) if len(found) else 0
        while offset < len(found) and found[offset]:
            kind = int(kinds[offset])
            if kind in known or self._is_open(kind, pod):
                known.add(kind)
                yield offset
                found[offset] = False
            else:
                closed.add(kind)
                found &= kinds != kind
            offset = int(found.argmax())

    def _is_open(self, kind: int, pod: PodClass) -> bool:
        own = self._rules.algebra.intersection(self._samples[kind][1], pod.requirements)
        return isinstance(self._rules.with_domains(own, pod, lenient=True), RequirementSet)

    def _limit_room(self, found: Flags, numbers: NDArray[np.int64], request: Vector) -> None:
        for room, amount in zip(self._room, request, strict=True):
            if amount > 0:
                found &= room[numbers] >= amount

    def _gates_for(self, pod: PodClass) -> list[HostGates]:
        found = []
        for group, selects in pod.host_groups:
            if group.rule.type is TopologyType.AFFINITY and (
                pod.strict_host is not None or not group.occupied
            ):
                continue
            gates = self._gates.get((id(group), selects))
            if gates is None:
                gates = self._opened(group, selects)
            found.append(gates)
        return found

    def _opened(self, group: TopologyGroup, selects: bool) -> HostGates:
        gates = HostGates(group, selects, self._room.shape[1])
        for claim in self._claims:
            gates.append(claim.number)
            gates.refresh(claim)
        self._gates[id(group), selects] = gates
        self._gates_of.setdefault(id(group), []).append(gates)
        return gates

    def _admitted_kinds(self, pod: PodClass) -> Flags:
        """Which kinds of claims the requirements and taints admit."""
        key = (pod.requirements.number, pod.tolerance)
        known = self._admitted.get(key)
        if known is None or len(known) < len(self._samples):
            known = np.array([self._admits(pod, *s) for s in self._samples], np.bool_)
            self._admitted[key] = known
        return known

    def _admits(self, pod: PodClass, claim: NewClaim, own: RequirementSet) -> bool:
        if self._rules.algebra.mismatches(own, pod.requirements, lenient=True):
            return False
        return not pod.untolerated(claim.template.pool.taints)
