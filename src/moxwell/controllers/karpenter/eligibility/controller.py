"""``karpenter.eligibility``: the conditions Drifted and Consolidatable of node claims."""

from datetime import datetime

from msgspec import field

from moxwell.api.core.pods import Pod
from moxwell.api.karpenter.nodeclaims import (
    CONSOLIDATABLE,
    DRIFTED,
    NodeClaim,
    NodeClaimCondition,
)
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.meta import Value
from moxwell.controllers.karpenter.eligibility.plan import (
    ObservedEligibility,
    drift_reason,
    is_consolidatable,
    next_check,
)
from moxwell.controllers.karpenter.eligibility.see import EligibilityObserver
from moxwell.controllers.karpenter.karpenter_conditions import condition
from moxwell.controllers.karpenter.lookup import ClaimLookup
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

    def __init__(self, observer: EligibilityObserver, lookup: ClaimLookup) -> None:
        self._observer = observer
        self.watches = (
            Watch(Pod, lookup.claim_keys_of_pod, delay=COALESCE_SECONDS),
            Watch(NodePool, lookup.claim_keys_of_pool),
        )

    async def see(self, obj: NodeClaim, reader: Reader) -> ObservedEligibility:
        return await self._observer.observe(obj)

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
