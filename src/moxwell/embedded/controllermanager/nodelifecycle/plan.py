"""
Whether a node is reachable, by its lease, and what follows for its taints and conditions. Pure.

The conditions of a Node are the kubelet's; they are overwritten only while the kubelet is silent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from moxwell.api.meta import parse_time
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Merge, Writes

Json = Mapping[str, Any]
GRACE = timedelta(seconds=40)
RECHECK_SECONDS = 60.0  # of an unreachable node: a renewed lease causes no pass
UNREACHABLE_TAINT = "node.kubernetes.io/unreachable"
EFFECTS = ("NoSchedule", "NoExecute")


class NodeReason(StrEnum):
    """Reasons of the conditions that this controller writes."""

    STATUS_UNKNOWN = "NodeStatusUnknown"


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """The lease of a node and the conditions that its kubelet reported."""

    now: datetime
    lease: Json | None = None
    conditions: tuple[Json, ...] = ()


def next_move(node: Json, seen: ObservedNode) -> WriteMove:
    """Add the unreachable taints to a silent node; remove them from one that is heard again."""
    unreachable = is_unreachable(node, seen)
    taints = with_taints(node, seen.now, unreachable=unreachable)
    after = RECHECK_SECONDS if unreachable else _remaining(node, seen)
    if taints == (node["spec"].get("taints") or []):
        return Done(after)
    change = {"spec": {"taints": taints or None}}
    return Writes((Merge(NODES, node["metadata"]["name"], change),), requeue_after=after)


def is_unreachable(node: Json, seen: ObservedNode) -> bool:
    """Whether the lease has expired; a new node has the same time to create one."""
    return seen.now - _last_heard(node, seen) > GRACE


def _remaining(node: Json, seen: ObservedNode) -> float:
    return (GRACE - (seen.now - _last_heard(node, seen))).total_seconds() + 0.1


def _last_heard(node: Json, seen: ObservedNode) -> datetime:
    renewed = ((seen.lease or {}).get("spec") or {}).get("renewTime")
    return parse_time(renewed or node["metadata"]["creationTimestamp"])


def with_taints(node: Json, now: datetime, *, unreachable: bool) -> list[dict[str, Any]]:
    """The taints with the unreachable ones added or removed; ``timeAdded`` is that of the first."""
    there = [dict(t) for t in node["spec"].get("taints") or ()]
    known = {t["effect"]: t for t in there if t["key"] == UNREACHABLE_TAINT}
    added = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    taints = [
        known.get(e, {"key": UNREACHABLE_TAINT, "effect": e, "timeAdded": added}) for e in EFFECTS
    ]
    kept = [t for t in there if t["key"] != UNREACHABLE_TAINT]
    return kept + (taints if unreachable else [])


def describe(node: Json, seen: ObservedNode) -> dict[str, Any] | None:
    """All conditions of a silent node as Unknown; None once they are, or if it is heard."""
    known = any(c["type"] == "Ready" and c["status"] != "Unknown" for c in seen.conditions)
    if not (known and is_unreachable(node, seen)):
        return None
    unknown = {
        "status": "Unknown",
        "reason": str(NodeReason.STATUS_UNKNOWN),
        "message": "Kubelet stopped posting node status.",
    }
    return {"conditions": [{**c, **unknown} for c in seen.conditions]}
