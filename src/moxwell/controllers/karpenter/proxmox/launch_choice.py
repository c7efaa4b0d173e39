"""
Which instance type and host a node claim gets: the cheapest that fits, then the best host. Pure.

Of equally cheap ones the host that packing chose for the claim comes first, if it has room.

Balanced takes the host with the least load, AvailabilityFirst one that the UID of the claim
selects, so that claims are spread and a repeated choice is the same.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.controllers.karpenter.names import PLANNED_HOST
from moxwell.controllers.karpenter.proxmox.catalogue import (
    Candidate,
    CatalogueSettings,
    node_capacity,
)
from moxwell.scheduling.guest_offerings import FAMILY, LABELS, Blocked
from moxwell.scheduling.guest_sizes import GuestSize
from moxwell.scheduling.inventory_model import HostKey
from moxwell.scheduling.requirements import LabelRequirement, requirement
from moxwell.scheduling.resource_lists import ResourceList, less, requested
from moxwell.scheduling.well_known_labels import (
    ARCH,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODE_POOL,
    OS,
    REGION,
    ZONE,
    normalized,
)

SHOWN_REASONS = 3


@dataclass(frozen=True, slots=True)
class LaunchChoice:
    """A size on a host, with the labels of the node."""

    size: GuestSize
    candidate: Candidate
    labels: Mapping[str, str] = field(hash=False)
    capacity: ResourceList = field(hash=False)

    @property
    def allocatable(self) -> dict[str, int]:
        return less(self.capacity, self.size.overhead.all)


@dataclass(frozen=True, slots=True)
class NoOffering:
    """No offering can serve a node claim now."""

    message: str


def choose(
    claim: NodeClaim,
    sizes: Iterable[GuestSize],
    hosts: Iterable[Candidate],
    *,
    settings: CatalogueSettings,
    blocked: Blocked = (),
    at_random: bool = False,
    warm: Collection[HostKey] = (),
) -> LaunchChoice | NoOffering:
    """
    The offering for a node claim, or why there is none.

    Of equal prices a host in ``warm`` is taken: it has a guest that is already cloned.
    """
    wanted = _requirements(claim)
    requests = requested(claim.spec.resources.requests if claim.spec.resources else None)
    known = tuple(hosts)
    compatible = [
        LaunchChoice(size, host, labels, node_capacity(size, settings))
        for size in sizes
        for host in known
        if _allows(wanted, labels := _labels(size, host))
    ]
    large = [c for c in compatible if _holds(c.allocatable, requests)]
    free = [c for c in large if _is_free(c, blocked)]
    if free:
        planned = claim.metadata.annotations.get(PLANNED_HOST, "")
        return min(free, key=lambda c: _rank(c, claim.uid, at_random, warm, planned))
    return NoOffering(_why(known, compatible, large))


def _requirements(claim: NodeClaim) -> tuple[LabelRequirement, ...]:
    return tuple(
        requirement(normalized(r.key), r.operator, r.values) for r in claim.spec.requirements
    )


def _labels(size: GuestSize, host: Candidate) -> dict[str, str]:
    return {
        INSTANCE_TYPE: size.name,
        CAPACITY_TYPE: size.capacity_type,
        FAMILY: size.family,
        REGION: host.room.key.region,
        ZONE: host.room.zone_name,
        ARCH: host.room.arch,
        OS: "linux",
    }


def _allows(wanted: Iterable[LabelRequirement], labels: Mapping[str, str]) -> bool:
    """Labels of the provider must match; others come from the claim itself."""
    for each in wanted:
        if each.key in labels:
            if not each.has(labels[each.key]):
                return False
        elif each.key in LABELS.well_known and each.key != NODE_POOL and not each.is_negative:
            return False
    return True


def _holds(available: ResourceList, requests: ResourceList) -> bool:
    return all(available.get(name, 0) >= amount for name, amount in requests.items())


def _is_free(choice: LaunchChoice, blocked: Blocked) -> bool:
    room = choice.candidate.room
    return room.fits(choice.size) and (choice.size.name, room.key) not in blocked


def _rank(
    choice: LaunchChoice, uid: str, at_random: bool, warm: Collection[HostKey], planned: str
) -> tuple[float, bool, bool, float, str, str]:
    key = str(choice.candidate.room.key)
    cold = choice.candidate.room.key not in warm
    load = choice.candidate.state.load
    if at_random:
        load = int.from_bytes(hashlib.sha256(f"{uid}/{key}".encode()).digest()[:6], "big")
    return choice.size.price, cold, key != planned, load, choice.size.name, key


def _why(
    hosts: tuple[Candidate, ...], compatible: list[LaunchChoice], large: list[LaunchChoice]
) -> str:
    if not hosts:
        return "the node class selects no host"
    if not compatible:
        return "no instance type on any host matches the requirements of the node claim"
    if not large:
        return "no instance type is large enough for the requests of the node claim"
    names = sorted({str(c.candidate.room.key) for c in large})
    shown = ", ".join(names[:SHOWN_REASONS]) + (" …" if len(names) > SHOWN_REASONS else "")
    return f"no host has room for a matching instance type now ({shown})"
