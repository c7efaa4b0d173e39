"""The next move of a node claim. Pure."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.controllers.karpenter.claim.observed import ObservedNodeClaim
from moxwell.controllers.karpenter.claim.reasons import NodeClaimReason
from moxwell.controllers.karpenter.claim.registration import (
    initialize,
    register,
    uninitialized_reason,
)
from moxwell.controllers.karpenter.durations import after, seconds_or_never, soonest, until
from moxwell.controllers.karpenter.provider import InstanceState, LaunchFailure
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Merge, Writes
from moxwell.scheduling.well_known_labels import INITIALIZED

LAUNCH_SECONDS = 5.0  # until the next look at a machine that is being made
RETRY_SECONDS = 30.0  # until the next try after the launch failed


class ClaimDisruption(StrEnum):
    """Why a node claim is deleted, as the metric counts it."""

    INSUFFICIENT_CAPACITY = "insufficient_capacity"
    NODE_CLASS_NOT_READY = "nodeclass_not_ready"
    LAUNCH_TIMEOUT = "launch_timeout"
    REGISTRATION_TIMEOUT = "registration_timeout"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class LaunchMachine:
    """Begin or continue to make the machine."""

    claim: NodeClaim
    requeue_after: float = LAUNCH_SECONDS


@dataclass(frozen=True, slots=True)
class TerminateMachine:
    """Begin or continue to delete the machine."""

    claim: NodeClaim
    requeue_after: float = LAUNCH_SECONDS


@dataclass(frozen=True, slots=True)
class EndClaim:
    """The machine is gone; a last call of the provider deletes what an interrupted launch left."""

    claim: NodeClaim
    seconds: float
    final = True


@dataclass(frozen=True, slots=True)
class DeleteClaim:
    """Delete the node claim."""

    claim: NodeClaim
    why: ClaimDisruption
    message: str = ""


@dataclass(frozen=True, slots=True)
class RegisterNode:
    """Make the node that joined the node of the claim."""

    claim: NodeClaim
    write: Merge


ClaimMove = (
    LaunchMachine | TerminateMachine | EndClaim | DeleteClaim | RegisterNode | Writes | Wait | Done
)
_FATAL = {
    LaunchFailure.INSUFFICIENT_CAPACITY: ClaimDisruption.INSUFFICIENT_CAPACITY,
    LaunchFailure.NODE_CLASS_NOT_READY: ClaimDisruption.NODE_CLASS_NOT_READY,
}


def plan_claim(claim: NodeClaim, seen: ObservedNodeClaim) -> ClaimMove:
    """The next move of a node claim that is not being deleted."""
    expires = seconds_to_expiry(claim, seen)
    if expires == 0:
        return DeleteClaim(claim, ClaimDisruption.EXPIRED, "expireAfter has passed")
    if not seen.is_launched:
        return _launch(claim, seen)
    if (labels := _missing_labels(claim, seen)) is not None:
        return labels
    return _node_move(claim, seen, expires)


def seconds_to_expiry(claim: NodeClaim, seen: ObservedNodeClaim) -> float | None:
    """The seconds until the node claim expires; None if it never does."""
    lifetime = seconds_or_never(claim.spec.expire_after)
    return until(seen.now, after(claim.metadata.creation_timestamp, lifetime))


def _age(claim: NodeClaim, seen: ObservedNodeClaim) -> float:
    return _seconds_since(claim.metadata.creation_timestamp, seen)


def _seconds_since(moment: datetime | None, seen: ObservedNodeClaim) -> float:
    return 0.0 if moment is None else (seen.now - moment).total_seconds()


def _launch(claim: NodeClaim, seen: ObservedNodeClaim) -> ClaimMove:
    instance, timeout = seen.instance, seen.timeouts.launch_seconds
    failure = instance.failure if instance is not None else None
    if failure in _FATAL:
        assert instance is not None
        assert failure is not None
        return DeleteClaim(claim, _FATAL[failure], instance.message)
    working = instance is not None and instance.in_progress
    if _age(claim, seen) >= timeout and not working:
        text = f"no machine was made within {timeout:.0f} seconds"
        return DeleteClaim(claim, ClaimDisruption.LAUNCH_TIMEOUT, text)
    if instance is not None and instance.state is InstanceState.TERMINATING:
        text = "the machine is being deleted"
        return Wait(NodeClaimReason.INSTANCE_TERMINATING, text, requeue_after=LAUNCH_SECONDS)
    failed = instance is not None and instance.state is InstanceState.FAILED
    left = LAUNCH_SECONDS if working else timeout - _age(claim, seen)
    return LaunchMachine(claim, min(RETRY_SECONDS if failed else LAUNCH_SECONDS, left))


def _missing_labels(claim: NodeClaim, seen: ObservedNodeClaim) -> Writes | None:
    """Add the labels that the launch decided; those that the claim has win."""
    if seen.instance is None:
        return None
    known = claim.metadata.labels
    missing = {k: v for k, v in sorted(seen.instance.labels.items()) if k not in known}
    if not missing:
        return None
    change = {"metadata": {"labels": missing}}
    return Writes((Merge(NodeClaim, claim.metadata.name, change),), requeue_after=0.0)


def _node_move(claim: NodeClaim, seen: ObservedNodeClaim, expires: float | None) -> ClaimMove:
    if len(seen.nodes) > 1:
        names = ", ".join(n.metadata.name for n in seen.nodes)
        text = f"the nodes {names} have the provider ID of the machine: delete all but its own"
        return Wait(NodeClaimReason.MULTIPLE_NODES_FOUND, text, requeue_after=expires)
    if seen.node is None:
        return _await_node(claim, seen, expires)
    if not seen.is_registered:
        return RegisterNode(claim, register(claim, seen.node))
    if seen.node.metadata.labels.get(INITIALIZED) == "true":
        return Done(requeue_after=expires)
    if (missing := uninitialized_reason(claim, seen.node)) is not None:
        return Wait(NodeClaimReason.UNINITIALIZED, missing[1], requeue_after=expires)
    return Writes((initialize(seen.node),), requeue_after=expires)


def _await_node(claim: NodeClaim, seen: ObservedNodeClaim, expires: float | None) -> ClaimMove:
    text = "Node not registered with cluster"
    if seen.is_registered:  # the node was deleted; garbage collection decides
        return Wait(NodeClaimReason.NODE_NOT_FOUND, text, requeue_after=expires)
    waited = _seconds_since(seen.record.launched or claim.metadata.creation_timestamp, seen)
    left = seen.timeouts.registration_seconds - waited
    if left <= 0:
        text = f"no node joined within {seen.timeouts.registration_seconds:.0f} seconds"
        return DeleteClaim(claim, ClaimDisruption.REGISTRATION_TIMEOUT, text)
    return Wait(NodeClaimReason.NODE_NOT_FOUND, text, requeue_after=soonest(left, expires))
