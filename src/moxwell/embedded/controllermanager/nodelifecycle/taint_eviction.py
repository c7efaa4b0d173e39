"""When a pod must leave its node for the node's ``NoExecute`` taints: pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from moxwell.api.meta import parse_time
from moxwell.embedded.scheduler.plan import tolerates

Json = Mapping[str, Any]


def expelling(node: Json | None) -> list[dict[str, Any]]:
    """The taints of a node that drive pods away."""
    taints = ((node or {}).get("spec") or {}).get("taints") or ()
    return [dict(t) for t in taints if t["effect"] == "NoExecute"]


def choose_end(pod: Json, taints: Sequence[Json], since: Mapping[str, datetime]) -> datetime | None:
    """
    The moment at which the pod has to go; None if it may stay.

    ``since`` tells by key when a taint was first seen, for those that do not say it themselves.
    """
    tolerations = pod["spec"].get("tolerations") or ()
    ends = [_end(tolerations, taint, since) for taint in taints]
    return min((end for end in ends if end is not None), default=None)


def _end(
    tolerations: Sequence[dict[str, Any]], taint: Json, since: Mapping[str, datetime]
) -> datetime | None:
    began = parse_time(taint["timeAdded"]) if taint.get("timeAdded") else since[taint["key"]]
    borne = next((t for t in tolerations if tolerates(t, dict(taint))), None)
    if borne is None:
        return began
    seconds = borne.get("tolerationSeconds")
    return None if seconds is None else began + timedelta(seconds=max(0, seconds))
