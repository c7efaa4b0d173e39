"""Whether a node lives, from its lease: pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from moxwell.api.meta import parse_time

Json = Mapping[str, Any]
GRACE = timedelta(seconds=40)
EVICT_AFTER = timedelta(seconds=300)
TAINT = "node.kubernetes.io/unreachable"
EFFECTS = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to think of a node now, and when to look again."""

    silent: bool
    evict: bool
    again: float


def judge(node: Json, lease: Json | None, now: datetime) -> Verdict:
    """A node is silent when its lease has run out; a new one gets the same time to make one."""
    spoke = _last_word(node, lease)
    quiet = now - spoke
    if quiet <= GRACE:
        return Verdict(False, False, (GRACE - quiet).total_seconds() + 0.1)
    left = GRACE + EVICT_AFTER - quiet
    return Verdict(True, left <= timedelta(), max(5.0, left.total_seconds()))


def _last_word(node: Json, lease: Json | None) -> datetime:
    renewed = ((lease or {}).get("spec") or {}).get("renewTime")
    return parse_time(renewed or node["metadata"]["creationTimestamp"])


def conditions(node: Json) -> list[dict[str, Any]]:
    """Every condition of a silent node, turned to Unknown."""
    there = (node.get("status") or {}).get("conditions") or [{"type": "Ready"}]
    return [
        {
            **c,
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
        }
        for c in there
    ]


def is_ready_known(node: Json) -> bool:
    """Whether somebody still believes the node's own word."""
    there = (node.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] != "Unknown" for c in there)


def taints(node: Json, *, silent: bool) -> list[dict[str, Any]]:
    """The node's taints with the unreachable ones put on or taken off."""
    kept = [dict(t) for t in node["spec"].get("taints") or () if t["key"] != TAINT]
    return kept + ([{"key": TAINT, "effect": e} for e in EFFECTS] if silent else [])
