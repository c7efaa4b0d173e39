"""
Decides the conditions and taints of a node from its heartbeats. Pure.

The conditions of a Node are the kubelet's; they are overwritten only while the kubelet does not
report. The ``NoSchedule`` taint follows the Ready condition at once. The ``NoExecute`` taint, which
evicts pods, is added at the rate of the node's zone and not while every zone is disrupted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from moxwell.embedded.controllermanager.resources import NODES
from moxwell.embedded.zones import ready_status
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Merge, Writes

Json = Mapping[str, Any]
GRACE_SECONDS = 40.0
STARTUP_GRACE_SECONDS = 60.0  # until the first status of a kubelet
OBSERVE_SECONDS = 20.0  # between two observations of a heartbeat: a renewed lease causes no pass
RECHECK_SECONDS = 60.0  # of a node that is tainted
RETRY_SECONDS = 10.0  # of an eviction that the rate of the zone delays
UNREACHABLE_TAINT = "node.kubernetes.io/unreachable"
NOT_READY_TAINT = "node.kubernetes.io/not-ready"
TAINT_OF_STATUS = {"Unknown": UNREACHABLE_TAINT, "False": NOT_READY_TAINT, "True": ""}
KUBELET_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class NodeReason(StrEnum):
    """Reasons of the conditions that this controller writes."""

    STATUS_UNKNOWN = "NodeStatusUnknown"
    NEVER_UPDATED = "NodeStatusNeverUpdated"


class Eviction(StrEnum):
    """Whether pods may be evicted from a node now."""

    ALLOWED = "Allowed"
    DELAYED = "Delayed"  # by the rate of the zone
    CANCELLED = "Cancelled"  # every zone is disrupted


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """How long a kubelet has been silent, the conditions it reported, and the state of its zone."""

    now: datetime
    silent_seconds: float = 0.0
    conditions: tuple[Json, ...] = ()
    eviction: Eviction = Eviction.ALLOWED
    zone: str = ""
    rate: float = 0.0  # evictions per second in the zone


@dataclass(frozen=True, slots=True)
class EvictNode:
    """Add the ``NoExecute`` taint, if the bucket of the zone has a token."""

    zone: str
    rate: float
    writes: Writes
    requeue_after: float = RETRY_SECONDS

    def __str__(self) -> str:
        return f"evict: {self.writes}"


NodeMove = EvictNode | Writes | Wait | Done


def is_silent(node: Json, silent_seconds: float) -> bool:
    """Whether the heartbeat has not changed for the grace period."""
    limit = GRACE_SECONDS if ready_status(node) else STARTUP_GRACE_SECONDS
    return silent_seconds >= limit


def status_of(node: Json, silent_seconds: float) -> str:
    """The status of Ready: the kubelet's, or Unknown while it is silent."""
    return "Unknown" if is_silent(node, silent_seconds) else ready_status(node)


def next_move(node: Json, seen: ObservedNode) -> NodeMove:
    """Keep the taints equal to the status of the node."""
    after = _recheck_after(node, seen)
    key = TAINT_OF_STATUS.get(status_of(node, seen.silent_seconds))
    if key is None:
        return Done(after)
    there = [dict(t) for t in node["spec"].get("taints") or ()]
    evicted = any(_is_ours(t) and t["effect"] == "NoExecute" for t in there)
    keep = evicted and seen.eviction is not Eviction.CANCELLED
    taints = with_taints(there, key, seen.now, evict=keep)
    if taints != there:
        return _write(node, taints, after)
    if not key or evicted or not may_evict(node, seen):
        return Done(after)
    evicting = with_taints(there, key, seen.now, evict=True)
    return EvictNode(seen.zone, seen.rate, _write(node, evicting, RECHECK_SECONDS))


def may_evict(node: Json, seen: ObservedNode) -> bool:
    """
    Whether the node's pods may be evicted now.

    A silent node waits one more observation, so that the nodes that became silent with it are
    known before the state of the zone decides.
    """
    if seen.eviction is not Eviction.ALLOWED:
        return False
    if status_of(node, seen.silent_seconds) != "Unknown":
        return True
    return seen.silent_seconds >= GRACE_SECONDS + OBSERVE_SECONDS


def _recheck_after(node: Json, seen: ObservedNode) -> float:
    if is_silent(node, seen.silent_seconds):
        waiting = seen.eviction is Eviction.DELAYED or not may_evict(node, seen)
        return RETRY_SECONDS if waiting else OBSERVE_SECONDS
    limit = GRACE_SECONDS if ready_status(node) else STARTUP_GRACE_SECONDS
    return min(limit - seen.silent_seconds + 0.1, OBSERVE_SECONDS)


def _write(node: Json, taints: Sequence[Json], after: float) -> Writes:
    meta = node["metadata"]
    # The version makes a taint that another client adds meanwhile a conflict instead of a loss.
    version = {"resourceVersion": meta["resourceVersion"]} if "resourceVersion" in meta else {}
    change = {"metadata": version, "spec": {"taints": list(taints) or None}}
    return Writes((Merge(NODES, meta["name"], change),), requeue_after=after)


def _is_ours(taint: Json) -> bool:
    return taint["key"] in {UNREACHABLE_TAINT, NOT_READY_TAINT}


def with_taints(
    there: Sequence[Json], key: str, now: datetime, *, evict: bool
) -> list[dict[str, Any]]:
    """The taints with ours for ``key``; none of ours without a key. Taints of others stay."""
    ours = {(t["key"], t["effect"]): dict(t) for t in there if _is_ours(t)}
    effects = (("NoSchedule", "NoExecute") if evict else ("NoSchedule",)) if key else ()
    added = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return [
        *(dict(t) for t in there if not _is_ours(t)),
        *(ours.get((key, e), {"key": key, "effect": e, "timeAdded": added}) for e in effects),
    ]


def describe(node: Json, seen: ObservedNode) -> dict[str, Any] | None:
    """
    The kubelet's conditions as Unknown since now, if it is silent; else None.

    Conditions that are Unknown already keep their time.
    """
    if not is_silent(node, seen.silent_seconds):
        return None
    reported = {c["type"]: c for c in seen.conditions}
    if all(reported.get(t, {}).get("status") == "Unknown" for t in KUBELET_CONDITIONS):
        return None
    return {"conditions": [_unknown(t, reported.get(t), seen.now) for t in KUBELET_CONDITIONS]}


def _unknown(kind: str, reported: Json | None, now: datetime) -> Json:
    if reported is not None and reported["status"] == "Unknown":
        return reported
    never = reported is None
    return {
        **(reported or {"type": kind}),
        "status": "Unknown",
        "reason": str(NodeReason.NEVER_UPDATED if never else NodeReason.STATUS_UNKNOWN),
        "message": f"Kubelet {'never posted' if never else 'stopped posting'} node status.",
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
