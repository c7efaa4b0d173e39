"""Reads the machine of a node claim and its nodes."""

from datetime import datetime

from moxwell.api.karpenter.nodeclaims import LAUNCHED, NodeClaim
from moxwell.clock import Clock
from moxwell.controllers.karpenter.claim.observed import (
    ClaimTimeouts,
    LaunchRecord,
    ObservedNodeClaim,
)
from moxwell.controllers.karpenter.lookup import ClaimLookup
from moxwell.controllers.karpenter.node_termination import TerminationObserver
from moxwell.controllers.karpenter.provider import InstanceReader


def _launched(claim: NodeClaim) -> datetime | None:
    """When the launch was recorded; None before."""
    for condition in claim.status.conditions:
        if condition.type == LAUNCHED and condition.status == "True":
            return condition.last_transition_time
    return None


class ClaimObserver:
    """Observes node claims through the provider and the caches."""

    def __init__(
        self,
        lookup: ClaimLookup,
        terminations: TerminationObserver,
        provider: InstanceReader,
        clock: Clock,
        timeouts: ClaimTimeouts,
    ) -> None:
        self._lookup, self._terminations, self._provider = lookup, terminations, provider
        self._clock, self._timeouts = clock, timeouts

    async def observe(self, claim: NodeClaim) -> ObservedNodeClaim:
        """The machine, and the nodes with its provider ID."""
        instance = await self._provider.instance(claim)
        status = claim.status
        provider_id = status.provider_id or (instance.provider_id if instance else "")
        nodes = self._lookup.nodes_of(provider_id)
        ending = [n for n in nodes if n.metadata.deletion_timestamp is not None]
        return ObservedNodeClaim(
            now=self._clock.now(),
            instance=instance,
            record=LaunchRecord(
                provider_id=status.provider_id,
                launched=_launched(claim),
                image_id=status.image_id,
                node_name=status.node_name,
                capacity=tuple(sorted(status.capacity.items())),
                allocatable=tuple(sorted(status.allocatable.items())),
            ),
            nodes=nodes,
            terminations=tuple([await self._terminations.observe(n) for n in ending]),
            timeouts=self._timeouts,
        )
