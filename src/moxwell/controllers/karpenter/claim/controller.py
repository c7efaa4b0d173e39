"""``karpenter.claim``: launches, registers, initializes, expires and deletes node claims."""

from collections.abc import Sequence
from typing import Any

from moxwell.api.core.nodes import Node
from moxwell.api.karpenter.nodeclaims import INSTANCE_TERMINATING, NodeClaim
from moxwell.controllers.karpenter.claim.deletion import plan_deletion
from moxwell.controllers.karpenter.claim.describe import ClaimLifecycleStatus, describe_claim
from moxwell.controllers.karpenter.claim.observed import ObservedNodeClaim
from moxwell.controllers.karpenter.claim.plan import (
    ClaimDisruption,
    ClaimMove,
    DeleteClaim,
    EndClaim,
    LaunchMachine,
    RegisterNode,
    TerminateMachine,
    plan_claim,
)
from moxwell.controllers.karpenter.claim.reasons import NodeClaimReason
from moxwell.controllers.karpenter.claim.registration import (
    inconsistencies,
    lacks_unregistered_taint,
)
from moxwell.controllers.karpenter.claim.see import ClaimObserver
from moxwell.controllers.karpenter.claim_metrics import ClaimMetrics
from moxwell.controllers.karpenter.karpenter_conditions import true_since
from moxwell.controllers.karpenter.lookup import ClaimLookup
from moxwell.controllers.karpenter.names import FINALIZER, TERMINATION_TIMESTAMP
from moxwell.controllers.karpenter.provider import InstanceWriter
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.reconciler import Note, Reconciler
from moxwell.runtime.watches import Watch
from moxwell.runtime.writes import Delete, Merge, Writes
from moxwell.scheduling.well_known_labels import INITIALIZED

NAME = "karpenter.claim"
_EVENTS = {
    ClaimDisruption.INSUFFICIENT_CAPACITY: NodeClaimReason.INSUFFICIENT_CAPACITY,
    ClaimDisruption.NODE_CLASS_NOT_READY: NodeClaimReason.NODE_CLASS_NOT_READY,
}


class NodeClaimReconciler(
    Reconciler[NodeClaim, ObservedNodeClaim, ClaimMove, ClaimLifecycleStatus]
):
    """One pass per node claim."""

    kind = NodeClaim
    finalizer = FINALIZER

    def __init__(
        self,
        kube: Kube,
        provider: InstanceWriter,
        observer: ClaimObserver,
        lookup: ClaimLookup,
        metrics: ClaimMetrics,
    ) -> None:
        self._kube, self._provider, self._observer = kube, provider, observer
        self._metrics = metrics
        self.watches = (Watch(Node, lookup.claim_keys_of_node),)

    async def see(self, obj: NodeClaim, reader: Reader) -> ObservedNodeClaim:
        return await self._observer.observe(obj)

    def plan(self, obj: NodeClaim, seen: ObservedNodeClaim) -> ClaimMove:
        if obj.metadata.deletion_timestamp is not None:
            return plan_deletion(obj, seen)
        return plan_claim(obj, seen)

    async def act(self, move: ClaimMove) -> Any:
        match move:
            case LaunchMachine():
                await self._provider.launch(move.claim)
            case TerminateMachine() | EndClaim():
                await self._terminate(move)
            case DeleteClaim():
                await self._delete(move)
            case RegisterNode():
                await move.write.perform(self._kube)
                self._metrics.node_registered(move.claim.metadata.labels)
            case Writes():
                return await move.perform(self._kube, NodeClaim)
        return None

    async def _terminate(self, move: TerminateMachine | EndClaim) -> None:
        meta = move.claim.metadata
        await self._provider.terminate(meta.name, meta.uid)
        if isinstance(move, EndClaim):
            self._metrics.claim_terminated(meta.labels, move.seconds)
            if (since := true_since(move.claim, INSTANCE_TERMINATING)) is not None:
                deleted = meta.deletion_timestamp or since
                ending = move.seconds - (since - deleted).total_seconds()
                self._metrics.instance_terminated(meta.labels, ending)

    async def _delete(self, move: DeleteClaim) -> None:
        meta = move.claim.metadata
        await Delete(NodeClaim, meta.name, uid=meta.uid).perform(self._kube)
        self._metrics.claim_disrupted(move.why, meta.labels)

    def describe(
        self, obj: NodeClaim, seen: ObservedNodeClaim, move: ClaimMove
    ) -> ClaimLifecycleStatus:
        return describe_claim(obj, seen)

    def events(self, obj: NodeClaim, seen: ObservedNodeClaim, move: ClaimMove) -> Sequence[Note]:
        name = obj.metadata.name
        if isinstance(move, DeleteClaim) and (reason := _EVENTS.get(move.why)) is not None:
            return (Note(reason, f"NodeClaim {name} event: {move.message}", "Warning"),)
        if isinstance(move, RegisterNode):
            return _registration(seen)
        if isinstance(move, Writes) and (deadline := _deadline(move)):
            text = f"All pods will be deleted by {deadline}"
            return (Note(NodeClaimReason.TERMINATION_GRACE_PERIOD_EXPIRING, text, "Warning"),)
        return _consistency(obj, seen)


def _registration(seen: ObservedNodeClaim) -> Sequence[Note]:
    if seen.node is None or not lacks_unregistered_taint(seen.node):
        return ()
    text = (
        "Missing karpenter.sh/unregistered taint: pods may be bound before the node has its taints"
    )
    return (Note(NodeClaimReason.UNREGISTERED_TAINT_MISSING, text, "Warning"),)


def _deadline(move: Writes) -> str:
    changes = (w.change.get("metadata", {}) for w in move.writes if isinstance(w, Merge))
    found = (c.get("annotations", {}).get(TERMINATION_TIMESTAMP) for c in changes)
    return next((text for text in found if text), "")


def _consistency(claim: NodeClaim, seen: ObservedNodeClaim) -> Sequence[Note]:
    node = seen.node
    if node is None or node.metadata.labels.get(INITIALIZED) != "true":
        return ()
    if claim.metadata.deletion_timestamp is not None:
        return ()
    issues = inconsistencies(claim, node)
    return [Note(NodeClaimReason.FAILED_CONSISTENCY_CHECK, issue, "Warning") for issue in issues]
