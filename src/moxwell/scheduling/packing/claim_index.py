"""
Arrays over new node claims that rule out, without looking at each, claims that a pod cannot join.

The index only skips claims that certainly fail: too little room in the largest remaining type,
requirements or taints that conflict, or a host name that a topology group closes. Whether one of
the rest fits is decided by :class:`~moxwell.scheduling.packing.claims.ClaimRules`.
"""

from collections.abc import Iterator

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
_MOST_KINDS = 64
_LIMIT = 2**62
Flags = NDArray[np.bool_]


class HostGates:
    """For a topology group of host names: which claims it leaves open."""

    __slots__ = ("group", "number", "open", "selects")

    def __init__(self, group: TopologyGroup, selects: bool, room: int) -> None:
        self.group = group
        self.selects = selects
        self.open: Flags = np.zeros(room, np.bool_)
        self.number = 0

    def refresh(self, claim: NewClaim) -> None:
        """Look again at a claim that got a pod."""
        if claim.number >= len(self.open):
            self.open = np.concatenate((self.open, np.zeros_like(self.open)))
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
        self._admitted: dict[tuple[int, int], list[bool]] = {}

    def update(self, claim: NewClaim, groups: list[TopologyGroup]) -> None:
        """Take over the state of a claim that got a pod, which the groups of host names counted."""
        if claim.number == len(self._claims):
            self._append(claim)
        left = claim.template.table.largest_allocatable(claim.options)
        self._room[:, claim.number] = [
            min(a - r, _LIMIT) for a, r in zip(left, claim.requests, strict=True)
        ]
        self._kind[claim.number] = self._kind_of(claim)
        for group in groups:
            for gates in self._gates_of.get(id(group), ()):
                gates.refresh(claim)

    def _append(self, claim: NewClaim) -> None:
        self._claims.append(claim)
        if claim.number == self._room.shape[1]:
            self._room = np.concatenate((self._room, np.zeros_like(self._room)), axis=1)
            self._kind = np.concatenate((self._kind, np.zeros_like(self._kind)))
        for gates in self._gates.values():
            gates.refresh(claim)

    def _kind_of(self, claim: NewClaim) -> int:
        """Claims of one pool with the same requirements are of one kind."""
        key = (claim.template.number, claim.requirements.number)
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = len(self._kinds)
            self._samples.append((claim, claim.requirements))
        return found

    def candidates(self, order: NDArray[np.int64], pod: PodClass) -> Iterator[tuple[int, NewClaim]]:
        """Place in the order and claim, for the claims that the pod may fit."""
        gates = self._gates_for(pod)
        if any(g.number == 0 for g in gates):
            return
        kinds = self._open_kinds(pod)
        start, size = 0, _CHUNK
        while start < len(order):
            numbers = order[start : start + size]
            found = kinds[self._kind[numbers]]
            for each in gates:
                found &= each.open[numbers]
            self._limit_room(found, numbers, pod.requests)
            for offset in found.nonzero()[0].tolist():
                yield start + offset, self._claims[numbers[offset]]
            start, size = start + size, size * 4

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
            gates.refresh(claim)
        self._gates[id(group), selects] = gates
        self._gates_of.setdefault(id(group), []).append(gates)
        return gates

    def _open_kinds(self, pod: PodClass) -> Flags:
        """Which kinds of claims the requirements and topology domains of a pod admit."""
        admitted = self._admitted_kinds(pod)
        if not pod.domain_groups or len(self._samples) > _MOST_KINDS:
            return np.array(admitted, np.bool_)
        algebra = self._rules.algebra
        flags = [
            ok
            and isinstance(
                self._rules.with_domains(
                    algebra.intersection(own, pod.requirements), pod, lenient=True
                ),
                RequirementSet,
            )
            for ok, (_, own) in zip(admitted, self._samples, strict=True)
        ]
        return np.array(flags, np.bool_)

    def _admitted_kinds(self, pod: PodClass) -> list[bool]:
        key = (pod.requirements.number, pod.tolerance)
        known = self._admitted.setdefault(key, [])
        for claim, own in self._samples[len(known) :]:
            conflicts = self._rules.algebra.mismatches(own, pod.requirements, lenient=True)
            known.append(not conflicts and not pod.untolerated(claim.template.pool.taints))
        return known
