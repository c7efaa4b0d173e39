"""
Reads what decides whether a node claim may be disrupted.

The time of the last pod event is kept in the status, because the pods of the event may be gone.
"""

from moxwell.api.karpenter.nodeclaims import LAUNCHED, NodeClaim
from moxwell.clock import Clock
from moxwell.controllers.karpenter.eligibility.plan import (
    TYPE_CHECK_SECONDS,
    ObservedEligibility,
    last_pod_event,
)
from moxwell.controllers.karpenter.karpenter_conditions import is_true
from moxwell.controllers.karpenter.lookup import ClaimLookup
from moxwell.controllers.karpenter.provider import InstanceReader


class EligibilityObserver:
    """Observes node claims through the provider and the caches."""

    def __init__(self, lookup: ClaimLookup, provider: InstanceReader, clock: Clock) -> None:
        self._lookup, self._provider, self._clock = lookup, provider, clock

    async def observe(self, claim: NodeClaim) -> ObservedEligibility:
        """The pool, the pods and the drift of a node claim."""
        now, pool = self._clock.now(), self._lookup.pool_of(claim)
        pods = self._lookup.pods_on(claim.status.node_name)
        event = last_pod_event(pods, claim.status.last_pod_event_time)
        if pool is None or not is_true(claim, LAUNCHED):
            return ObservedEligibility(now=now, pool=pool, last_pod_event=event)
        created = claim.metadata.creation_timestamp or now
        aged = (now - created).total_seconds() > TYPE_CHECK_SECONDS
        return ObservedEligibility(
            now=now,
            pool=pool,
            last_pod_event=event,
            provider_drift=await self._provider.drift(claim),
            instance_types=await self._provider.instance_types(pool) if aged else None,
        )
