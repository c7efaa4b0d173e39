"""What is written when a spot machine is interrupted. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.controllers.karpenter.durations import seconds_or_never
from moxwell.controllers.karpenter.names import INTERRUPTED, TERMINATION_TIMESTAMP
from moxwell.controllers.karpenter.node_termination import termination_time
from moxwell.runtime.reconciler import Note
from moxwell.runtime.writes import Merge

SPOT_INTERRUPTED = "SpotInterrupted"  # event, and reason of the condition DisruptionReason
METRIC_REASON = "spot_interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionSettings:
    """How often needs are looked at, and how long pods of an interrupted node may take to end."""

    interval_seconds: float = 10.0
    grace_seconds: float = 120.0


def recorded(claim: NodeClaim, why: str, now: datetime, grace_seconds: float) -> Merge:
    """
    The record of an interruption: what needs the capacity, and when the last pod must have ended.

    The deadline is no later than the claim's own grace period or a deadline that it has already.
    """
    own = claim.spec.termination_grace_period
    seconds = seconds_or_never(own) if own is not None else None
    end = now + timedelta(seconds=grace_seconds if seconds is None else min(grace_seconds, seconds))
    known = termination_time(claim)
    deadline = end if known is None else min(end, known)
    annotations = {
        INTERRUPTED: why,
        TERMINATION_TIMESTAMP: deadline.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    meta = {"resourceVersion": claim.metadata.resource_version, "annotations": annotations}
    return Merge(NodeClaim, claim.metadata.name, {"metadata": meta})


def interrupted_note(kind: str, why: str) -> Note:
    """The event of the node claim and of its node."""
    return Note(SPOT_INTERRUPTED, f"Deleting the spot machine of the {kind}: {why}", "Warning")
