"""Conditions of node claims, in the way Karpenter writes them. Pure."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from moxwell.api.conditions import ConditionStatus
from moxwell.api.karpenter.nodeclaims import NodeClaim, NodeClaimCondition

READY = "Ready"
LONGEST = 300  # characters of a message


class DependentsReason(StrEnum):
    """Reasons of a Ready condition that follows from other conditions."""

    UNHEALTHY = "UnhealthyDependents"
    RECONCILING = "ReconcilingDependents"


def condition(
    type_: str, status: ConditionStatus, reason: str = "", message: str = ""
) -> NodeClaimCondition:
    """A condition; the reason of a condition without one is its type."""
    text = message if len(message) <= LONGEST else f"{message[:LONGEST]}..."
    return NodeClaimCondition(type=type_, status=status, reason=reason or type_, message=text)


def ready(dependents: Iterable[NodeClaimCondition]) -> NodeClaimCondition:
    """The Ready condition that follows from the conditions it depends on."""
    unhealthy = [c for c in dependents if c.status != "True"]
    if not unhealthy:
        return condition(READY, "True")
    failed = any(c.status == "False" for c in unhealthy)
    reason = DependentsReason.UNHEALTHY if failed else DependentsReason.RECONCILING
    text = ", ".join(f"{c.type}={c.status}" for c in unhealthy)
    return condition(READY, "False" if failed else "Unknown", reason, text)


def find(claim: NodeClaim, type_: str) -> NodeClaimCondition | None:
    """A condition of a node claim."""
    return next((c for c in claim.status.conditions if c.type == type_), None)


def is_true(claim: NodeClaim, type_: str) -> bool:
    """Whether a condition of a node claim is True."""
    found = find(claim, type_)
    return found is not None and found.status == "True"


def true_since(claim: NodeClaim, type_: str) -> datetime | None:
    """Since when a condition is True; None if it is not."""
    found = find(claim, type_)
    if found is None or found.status != "True":
        return None
    return found.last_transition_time
