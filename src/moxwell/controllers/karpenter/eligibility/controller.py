"""``karpenter.eligibility``: the conditions Drifted and Consolidatable of node claims."""

from datetime import datetime

from msgspec import field

from moxwell.api.core.pods import Pod
from moxwell.api.karpenter.nodeclaims import (
    CONSOLIDATABLE,
    DRIFTED,
    LAUNCHED,
    NodeClaim,
    NodeClaimCondition,
)
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.meta import Value
from moxwell.clock import Clock
from moxwell.controllers.karpenter.eligibility.plan import (
    TYPE_CHECK_SECONDS,
    ObservedEligibility,
    drift_reason,
    is_consolidatable,
    last_pod_event,
    next_check,
)
from moxwell.controllers.karpenter.karpenter_conditions import condition, is_true
from moxwell.controllers.karpenter.lookup import NodeLookup
from moxwell.controllers.karpenter.provider import InstanceReader
from moxwell.kube.reader import Reader
from moxwell.runtime.move import Done
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.watches import COALESCE_SECONDS, Watch

NAME = "karpenter.eligibility"
OWNED = (CONSOLIDATABLE, DRIFTED)


class EligibilityStatus(Value, frozen=True, kw_only=True):
    """The fields of the status that this controller owns."""

    last_pod_event_time: datetime | None = field(name="lastPodEventTime", default=None)
    conditions: tuple[NodeClaimCondition, ...] = ()


class EligibilityReconciler(Reconciler[NodeClaim, ObservedEligibility, Done, EligibilityStatus]):
    """One pass per node claim; it only writes the status."""

    kind = NodeClaim

    def __init__(self, lookup: NodeLookup, provider: InstanceReader, clock: Clock) -> None:
        self._lookup, self._provider, self._clock = lookup, provider, clock
        self.watches = (
            Watch(Pod, lookup.claim_keys_of_pod, delay=COALESCE_SECONDS),
            Watch(NodePool, lookup.claim_keys_of_pool),
        )

    async def see(self, obj: NodeClaim, reader: Reader) -> ObservedEligibility:
        now, pool = self._clock.now(), self._lookup.pool_of(obj)
        pods = self._lookup.pods_on(obj.status.node_name)
        recorded = obj.status.last_pod_event_time
        if pool is None or not is_true(obj, LAUNCHED):
            event = last_pod_event(pods, recorded)
            return ObservedEligibility(now=now, pool=pool, last_pod_event=event)
        created = obj.metadata.creation_timestamp or now
        aged = (now - created).total_seconds() > TYPE_CHECK_SECONDS
        return ObservedEligibility(
            now=now,
            pool=pool,
            last_pod_event=last_pod_event(pods, recorded),
            provider_drift=await self._provider.drift(obj),
            instance_types=await self._provider.instance_types(pool) if aged else None,
        )

    def plan(self, obj: NodeClaim, seen: ObservedEligibility) -> Done:
        return Done(requeue_after=next_check(obj, seen))

    async def act(self, move: Done) -> None:
        """There is nothing to execute."""

    def describe(self, obj: NodeClaim, seen: ObservedEligibility, move: Done) -> EligibilityStatus:
        found = []
        if reason := drift_reason(obj, seen):
            found.append(condition(DRIFTED, "True", reason, reason))
        if is_consolidatable(obj, seen):
            found.append(condition(CONSOLIDATABLE, "True"))
        return EligibilityStatus(last_pod_event_time=seen.last_pod_event, conditions=tuple(found))
