"""The next move of a node that is being deleted. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from moxwell.api.core.nodes import Node
from moxwell.api.core.pods import Pod
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.controllers.karpenter.drain import ExpiringPod
from moxwell.controllers.karpenter.names import EXCLUDE_BALANCERS
from moxwell.controllers.karpenter.node_termination import NodeTermination, TerminationPhase
from moxwell.runtime.move import Wait
from moxwell.runtime.writes import Delete, Merge, Writes
from moxwell.scheduling.packing.rescheduling import DISRUPTED_TAINT
from moxwell.scheduling.taints import same_taint

DRAIN_SECONDS = 5.0  # until pods that a budget protects are evicted again
INSTANCE_SECONDS = 5.0


class TerminationReason(StrEnum):
    """Reasons of waits and events of nodes and pods."""

    DELETING_CLAIM = "DeletingNodeClaim"
    DRAINING = "Draining"
    AWAITING_VOLUME_DETACHMENT = "AwaitingVolumeDetachment"
    FAILED_DRAINING = "FailedDraining"
    EVICTED = "Evicted"
    DISRUPTED = "Disrupted"
    TERMINATION_GRACE_PERIOD_EXPIRING = "TerminationGracePeriodExpiring"


@dataclass(frozen=True, slots=True)
class EvictPods:
    """Evict pods of one tier; delete those whose time is over."""

    node: Node
    evictable: tuple[Pod, ...]
    expiring: tuple[ExpiringPod, ...]
    why: str
    deadline: str = ""
    requeue_after: float = DRAIN_SECONDS


@dataclass(frozen=True, slots=True)
class TerminateInstance:
    """Begin or continue to delete the machine of the node."""

    claim: NodeClaim
    requeue_after: float = INSTANCE_SECONDS


@dataclass(frozen=True, slots=True)
class ReleaseNode:
    """Remove the finalizer of the node; ``drained`` unless its machine disappeared."""

    seen: NodeTermination
    drained: bool = True


TerminationMove = EvictPods | TerminateInstance | ReleaseNode | Writes | Wait


def plan_termination(node: Node, seen: NodeTermination) -> TerminationMove:
    """Delete the node claim, taint, drain, detach, terminate, release."""
    claim = seen.claim
    if claim is not None and claim.metadata.deletion_timestamp is None:
        write = Delete(NodeClaim, claim.metadata.name, uid=claim.metadata.uid)
        return Writes((write,), TerminationReason.DELETING_CLAIM, requeue_after=1.0)
    if seen.is_machine_lost and not node.status.is_true("Ready"):
        return ReleaseNode(seen, drained=False)
    if (taint := disrupt(node)) is not None:
        return Writes((taint,), TerminationReason.DRAINING, requeue_after=0.0)
    match seen.phase:
        case TerminationPhase.DRAINING:
            return _drain(node, seen)
        case TerminationPhase.DETACHING:
            text = f"waiting for the volume attachments {', '.join(seen.attachments[:5])}"
            reason = TerminationReason.AWAITING_VOLUME_DETACHMENT
            return Wait(reason, text, requeue_after=DRAIN_SECONDS)
    if claim is not None and seen.instance is not None:
        return TerminateInstance(claim)
    return ReleaseNode(seen)


def _drain(node: Node, seen: NodeTermination) -> TerminationMove:
    drain = seen.drain
    if drain.evictable or drain.expiring:
        deadline = seen.deadline.isoformat() if seen.deadline is not None else ""
        why = _reason(seen.claim)
        return EvictPods(node, drain.evictable, drain.expiring, why, deadline)
    text = f"{drain.waiting} pods are waiting to be evicted"
    after = DRAIN_SECONDS if drain.waiting else seen.drain_seconds_left
    return Wait(TerminationReason.DRAINING, text, requeue_after=after)


def _reason(claim: NodeClaim | None) -> str:
    """Why pods are evicted: the reason of the command that disrupts the node."""
    conditions = claim.status.conditions if claim is not None else ()
    found = (c.reason for c in conditions if c.type == "DisruptionReason" and c.status == "True")
    return next(found, "Forceful Termination")


def disrupt(node: Node) -> Merge | None:
    """Keep pods and load balancers away from a node; None if that is done."""
    tainted = any(same_taint(t, DISRUPTED_TAINT) for t in node.spec.taints)
    if tainted and EXCLUDE_BALANCERS in node.metadata.labels:
        return None
    kept = [t for t in node.spec.taints if t.key != DISRUPTED_TAINT.key]
    taints = [msgspec.to_builtins(t) for t in (*kept, DISRUPTED_TAINT)]
    change: dict[str, Any] = {
        "metadata": {
            "resourceVersion": node.metadata.resource_version,
            "labels": {EXCLUDE_BALANCERS: "karpenter"},
        },
        "spec": {"taints": taints},
    }
    return Merge(Node, node.metadata.name, change)
