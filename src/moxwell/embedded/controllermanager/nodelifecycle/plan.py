"""Whether a node lives, from its lease: pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from moxwell.api.meta import parse_time

Json = Mapping[str, Any]
GRACE = timedelta(seconds=40)
LISTEN_SECONDS = 60.0  # a renewed lease of a silent node wakes nobody
TAINT = "node.kubernetes.io/unreachable"
EFFECTS = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to think of a node now, and when to look again."""

    silent: bool
    again: float


def judge(node: Json, lease: Json | None, now: datetime) -> Verdict:
    """A node is silent when its lease has run out; a new one gets the same time to make one."""
    spoke = _last_word(node, lease)
    quiet = now - spoke
    if quiet <= GRACE:
        return Verdict(False, (GRACE - quiet).total_seconds() + 0.1)
    return Verdict(True, LISTEN_SECONDS)


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


def taints(node: Json, now: datetime, *, silent: bool) -> list[dict[str, Any]]:
    """The node's taints with the unreachable ones put on or taken off; pods count from then."""
    there = [dict(t) for t in node["spec"].get("taints") or ()]
    known = {t["effect"]: t for t in there if t["key"] == TAINT}
    said = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    new = [known.get(e, {"key": TAINT, "effect": e, "timeAdded": said}) for e in EFFECTS]
    return [t for t in there if t["key"] != TAINT] + (new if silent else [])
