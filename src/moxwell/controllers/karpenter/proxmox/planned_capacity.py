"""
Node claims that were decided and have no Machine yet, as used capacity of their planned hosts.

Decisions and launches count those of their cluster. A launch that finds no room beside them counts
only those of older claims, so that of two claims for the same room the older one gets it. Clusters
whose users are operators report theirs to all clusters of the process; an annotation that a tenant
can write uses up no room of others. In memory.
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


def others(claims: Iterable[NodeClaim], claim: NodeClaim, *, older: bool) -> list[NodeClaim]:
    """The claims beside one; with ``older`` only those that were created before it."""
    return [
        c for c in claims if c.uid != claim.uid and (not older or _age_key(c) < _age_key(claim))
    ]


def _age_key(claim: NodeClaim) -> tuple[bool, str, str]:
    created = claim.metadata.creation_timestamp
    return created is None, created.isoformat() if created else "", claim.name


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
