"""
Node claims that were decided and have no Machine yet, as used capacity of their planned hosts.

Decisions count them, launches do not: a launch proves the room itself. The clusters of a process
report theirs to each other. In memory.
"""

from collections.abc import Container, Iterable

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.clock import Clock
from moxwell.controllers.karpenter.planned_size import planned_guest
from moxwell.controllers.karpenter.proxmox.instance_record import machine_name
from moxwell.runtime.key import Key
from moxwell.scheduling.inventory_model import PendingGuest

REPORT_SECONDS = 60.0


def planned_guests(
    cluster: Key, claims: Iterable[NodeClaim], machines: Container[str], storage: str = ""
) -> tuple[PendingGuest, ...]:
    """The planned claims of a cluster that have none of the machines (NAMESPACE/NAME)."""
    found = (
        planned_guest(claim, storage)
        for claim in claims
        if not claim.deleting and _machine(cluster, claim) not in machines
    )
    return tuple(guest for guest in found if guest is not None)


def _machine(cluster: Key, claim: NodeClaim) -> str:
    return f"{cluster.namespace}/{machine_name(cluster.name, claim.name, claim.uid)}"


class PlannedCapacity:
    """The planned claims of all clusters of a process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reports: dict[Key, tuple[float, tuple[PendingGuest, ...]]] = {}

    def report(self, cluster: Key, guests: Iterable[PendingGuest]) -> tuple[PendingGuest, ...]:
        """Replace those of a cluster; returns those of all."""
        now = self._clock.monotonic()
        self._reports[cluster] = (now + REPORT_SECONDS, tuple(guests))
        self._reports = {c: entry for c, entry in self._reports.items() if entry[0] > now}
        return tuple(g for _, found in self._reports.values() for g in found)
