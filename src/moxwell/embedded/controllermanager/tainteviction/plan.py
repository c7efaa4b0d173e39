"""When a pod must leave its node because of the node's ``NoExecute`` taints. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

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
    """The ``NoExecute`` taints of the pod's node; by key, for how many seconds each is observed."""

    taints: tuple[Json, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


def no_execute_taints(node: Json | None) -> list[dict[str, Any]]:
    """The taints of a node that evict pods."""
    taints = ((node or {}).get("spec") or {}).get("taints") or ()
    return [dict(t) for t in taints if t["effect"] == "NoExecute"]


def next_move(pod: Json, seen: ObservedTaints) -> WriteMove:
    """Delete the pod when its toleration ends."""
    remaining, meta = seconds_left(pod, seen), pod["metadata"]
    if remaining is None or meta.get("deletionTimestamp"):
        return Done()
    if remaining > 0:
        return Wait(TaintEvictionReason.TOLERATED, requeue_after=remaining)
    delete = Delete(PODS, meta["name"], meta["namespace"], uid=meta["uid"])
    return Writes((delete,), TaintEvictionReason.EVICTED)


def seconds_left(pod: Json, seen: ObservedTaints) -> float | None:
    """
    How long the pod may stay; None if it tolerates all taints for ever.

    As in kube-controller-manager the toleration counts from the observation of the taint;
    ``timeAdded`` is a wall clock and is not used.
    """
    tolerations = pod["spec"].get("tolerations") or ()
    times = [
        _seconds_left(tolerations, taint, seen.seconds.get(taint["key"], 0.0))
        for taint in seen.taints
    ]
    return min((left for left in times if left is not None), default=None)


def _seconds_left(
    tolerations: Sequence[dict[str, Any]], taint: Json, observed: float
) -> float | None:
    toleration = next((t for t in tolerations if tolerates(t, dict(taint))), None)
    if toleration is None:
        return 0.0
    seconds = toleration.get("tolerationSeconds")
    return None if seconds is None else max(0.0, seconds - observed)
