"""
The next move of a node claim that is being deleted. Pure.

Its nodes are deleted first; the controller of nodes drains them and terminates the machine. What is
left of the machine is deleted after them.
"""

from moxwell.api.core.nodes import Node
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.controllers.karpenter.claim.observed import ObservedNodeClaim
from moxwell.controllers.karpenter.claim.plan import (
    ClaimMove,
    EndClaim,
    TerminateMachine,
)
from moxwell.controllers.karpenter.claim.reasons import NodeClaimReason
from moxwell.controllers.karpenter.durations import seconds_or_never
from moxwell.controllers.karpenter.names import FINALIZER, TERMINATION_TIMESTAMP
from moxwell.controllers.karpenter.node_termination import new_termination_time
from moxwell.runtime.move import Wait
from moxwell.runtime.writes import Delete, Merge, Writes

NODE_SECONDS = 5.0  # until the status of a node that is being drained is described again


def plan_deletion(claim: NodeClaim, seen: ObservedNodeClaim) -> ClaimMove:
    """Record the deadline, delete the nodes, then the machine."""
    if (deadline := _deadline(claim)) is not None:
        return deadline
    nodes = [n for n in seen.nodes if FINALIZER in n.metadata.finalizers]
    if staying := [n for n in nodes if n.metadata.deletion_timestamp is None]:
        writes = tuple(Delete(Node, n.metadata.name, uid=n.metadata.uid) for n in staying)
        return Writes(writes, NodeClaimReason.DELETING_NODE, requeue_after=NODE_SECONDS)
    if nodes:
        text = ", ".join(t.phase for t in seen.terminations)
        return Wait(NodeClaimReason.DELETING_NODE, text, requeue_after=NODE_SECONDS)
    if seen.instance is not None:
        return TerminateMachine(claim)
    assert claim.metadata.deletion_timestamp is not None
    return EndClaim(claim, (seen.now - claim.metadata.deletion_timestamp).total_seconds())


def _deadline(claim: NodeClaim) -> Writes | None:
    """The end of the termination grace period as an annotation, once."""
    text = claim.spec.termination_grace_period
    if text is None or TERMINATION_TIMESTAMP in claim.metadata.annotations:
        return None
    seconds = seconds_or_never(text)
    if seconds is None:
        return None
    change = {
        "metadata": {
            "resourceVersion": claim.metadata.resource_version,
            "annotations": {TERMINATION_TIMESTAMP: new_termination_time(claim, seconds)},
        }
    }
    return Writes((Merge(NodeClaim, claim.metadata.name, change),), requeue_after=0.0)
