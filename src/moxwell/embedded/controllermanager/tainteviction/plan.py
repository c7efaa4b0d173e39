"""When a pod must leave its node because of the node's ``NoExecute`` taints. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from moxwell.api.meta import parse_time
from moxwell.embedded.controllermanager.resources import PODS
from moxwell.embedded.scheduler.node_choice import tolerates
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Delete, Writes

Json = Mapping[str, Any]


class TaintEvictionReason(StrEnum):
    """Reasons of the moves and events of the taint eviction controller."""

    EVICTED = "TaintManagerEviction"
    TOLERATED = "ToleratedForSeconds"


@dataclass(frozen=True, slots=True)
class ObservedTaints:
    """The ``NoExecute`` taints of the pod's node, and by key when each was first seen."""

    now: datetime
    taints: tuple[Json, ...] = ()
    since: Mapping[str, datetime] = field(default_factory=dict)


def no_execute_taints(node: Json | None) -> list[dict[str, Any]]:
    """The taints of a node that evict pods."""
    taints = ((node or {}).get("spec") or {}).get("taints") or ()
    return [dict(t) for t in taints if t["effect"] == "NoExecute"]


def next_move(pod: Json, seen: ObservedTaints) -> WriteMove:
    """Delete the pod when its toleration ends."""
    at, meta = eviction_time(pod, seen.taints, seen.since), pod["metadata"]
    if at is None or meta.get("deletionTimestamp"):
        return Done()
    remaining = (at - seen.now).total_seconds()
    if remaining > 0:
        return Wait(TaintEvictionReason.TOLERATED, requeue_after=remaining)
    delete = Delete(PODS, meta["name"], meta["namespace"], uid=meta["uid"])
    return Writes((delete,), TaintEvictionReason.EVICTED)


def eviction_time(
    pod: Json, taints: Sequence[Json], since: Mapping[str, datetime]
) -> datetime | None:
    """
    When the pod must be deleted; None if it tolerates all taints for ever.

    ``since`` is used for taints without ``timeAdded``.
    """
    tolerations = pod["spec"].get("tolerations") or ()
    times = [_end_of_toleration(tolerations, taint, since) for taint in taints]
    return min((at for at in times if at is not None), default=None)


def _end_of_toleration(
    tolerations: Sequence[dict[str, Any]], taint: Json, since: Mapping[str, datetime]
) -> datetime | None:
    added = parse_time(taint["timeAdded"]) if taint.get("timeAdded") else since[taint["key"]]
    toleration = next((t for t in tolerations if tolerates(t, dict(taint))), None)
    if toleration is None:
        return added
    seconds = toleration.get("tolerationSeconds")
    return None if seconds is None else added + timedelta(seconds=max(0, seconds))
