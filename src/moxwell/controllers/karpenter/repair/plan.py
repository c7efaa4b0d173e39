"""Whether a node has been unhealthy for too long. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from moxwell.api.core.nodes import Node, NodeCondition
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.controllers.karpenter.names import TERMINATION_TIMESTAMP
from moxwell.controllers.karpenter.node_termination import termination_time
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Delete, Merge, Writes

UNHEALTHY_PERCENT = 20  # of the nodes of a pool; more are a fault that replacing does not repair
BLOCKED_SECONDS = 300.0


class RepairReason(StrEnum):
    """Reasons of waits and events."""

    UNHEALTHY = "Unhealthy"
    NODE_REPAIR_BLOCKED = "NodeRepairBlocked"


@dataclass(frozen=True, slots=True)
class RepairPolicy:
    """A condition that a node may have for some time."""

    condition: str
    status: str
    seconds: float


POLICIES = (RepairPolicy("Ready", "False", 900.0), RepairPolicy("Ready", "Unknown", 900.0))


@dataclass(frozen=True, slots=True)
class ObservedNodeHealth:
    """A node, its claim, and the nodes of its pool."""

    now: datetime
    claim: NodeClaim | None
    peers: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class RepairNode:
    """Delete the node claim at once, without a grace period for its pods."""

    claim: NodeClaim
    condition: NodeCondition
    writes: Writes


RepairMove = RepairNode | Wait | Done


def plan_repair(
    node: Node, seen: ObservedNodeHealth, policies: tuple[RepairPolicy, ...]
) -> RepairMove:
    """Replace the node, or wait until it has been unhealthy for long enough."""
    claim = seen.claim
    if claim is None or claim.metadata.deletion_timestamp is not None:
        return Done()
    found = soonest_policy(node, policies)
    if found is None:
        return Done()
    condition, due = found
    if seen.now < due:
        text = f"the condition {condition.type} is {condition.status}"
        left = (due - seen.now).total_seconds()
        return Wait(RepairReason.UNHEALTHY, text, requeue_after=left)
    if not few_are_unhealthy(seen.peers, policies):
        text = f"more than {UNHEALTHY_PERCENT}% nodes are unhealthy in the nodepool"
        return Wait(RepairReason.NODE_REPAIR_BLOCKED, text, requeue_after=BLOCKED_SECONDS)
    return RepairNode(claim, condition, Writes(_writes(claim, seen.now)))


def soonest_policy(
    node: Node, policies: Iterable[RepairPolicy]
) -> tuple[NodeCondition, datetime] | None:
    """The unhealthy condition whose time ends first, and when."""
    found = [
        (c, c.last_transition_time + timedelta(seconds=p.seconds))
        for p in policies
        for c in node.status.conditions
        if (c.type, c.status) == (p.condition, p.status) and c.last_transition_time is not None
    ]
    return min(found, key=lambda pair: pair[1], default=None)


def few_are_unhealthy(nodes: tuple[Node, ...], policies: tuple[RepairPolicy, ...]) -> bool:
    """Whether at most 20 % of the nodes, rounded up, are unhealthy."""
    unhealthy = sum(1 for n in nodes if soonest_policy(n, policies) is not None)
    return unhealthy <= -(-len(nodes) * UNHEALTHY_PERCENT // 100)


def _writes(claim: NodeClaim, now: datetime) -> tuple[Merge | Delete, ...]:
    meta = claim.metadata
    delete = Delete(NodeClaim, meta.name, uid=meta.uid)
    deadline = termination_time(claim)
    if deadline is not None and deadline <= now:
        return (delete,)
    stamp = {TERMINATION_TIMESTAMP: now.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return Merge(NodeClaim, meta.name, {"metadata": {"annotations": stamp}}), delete
