"""The next move of an unbound pod: bind it, prepare its volumes, or wait. Pure."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from moxwell.embedded.controllermanager.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
)
from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.controllermanager.storage.persistentvolume.plan import reservation
from moxwell.embedded.scheduler.node_choice import NodeChoice, choose_node
from moxwell.embedded.scheduler.volumes import UnboundClaim, VolumeConstraints
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Merge, Write, Writes

Json = dict[str, Any]
RETRY_SECONDS, BINDING_SECONDS = 15.0, 3.0


class SchedulerReason(StrEnum):
    """Reasons of the PodScheduled condition, of events and moves."""

    UNSCHEDULABLE = "Unschedulable"
    SCHEDULED = "Scheduled"
    FAILED = "FailedScheduling"
    WAITING_FOR_VOLUMES = "WaitingForVolumes"


@dataclass(frozen=True, slots=True)
class ObservedScheduling:
    """All nodes, the pods that are bound to them, and what the pod's volumes require."""

    nodes: tuple[Json, ...] = ()
    bound: tuple[Json, ...] = ()
    volumes: VolumeConstraints = field(default_factory=VolumeConstraints)

    def node(self, name: str) -> Json:
        return next(n for n in self.nodes if n["metadata"]["name"] == name)


@dataclass(frozen=True, slots=True)
class BindPod:
    """Bind a pod to a node through the binding subresource."""

    name: str
    namespace: str
    node: str


SchedulerMove = BindPod | Writes | Wait | Done


def is_unbound(pod: Json) -> bool:
    """Whether the pod waits for the default scheduler."""
    spec = pod["spec"]
    return (
        spec.get("schedulerName", "default-scheduler") == "default-scheduler"
        and not spec.get("schedulingGates")
        and not spec.get("nodeName")
        and "deletionTimestamp" not in pod["metadata"]
    )


def next_move(pod: Json, seen: ObservedScheduling) -> SchedulerMove:
    """Choose a node; bind unbound claims to it first."""
    if not is_unbound(pod):
        return Done()
    choice = _choose(pod, seen)
    if not choice.node:
        return Wait(SchedulerReason.UNSCHEDULABLE, choice.why, RETRY_SECONDS)
    if not seen.volumes.waiting:
        meta = pod["metadata"]
        return BindPod(meta["name"], meta["namespace"], choice.node)
    if writes := _volume_writes(seen.volumes, seen.node(choice.node)):
        return Writes(writes, SchedulerReason.WAITING_FOR_VOLUMES, BINDING_SECONDS)
    return Wait(SchedulerReason.WAITING_FOR_VOLUMES, requeue_after=BINDING_SECONDS)


def _choose(pod: Json, seen: ObservedScheduling) -> NodeChoice:
    """The node that was selected for the claims, if it still fits; else the best."""
    volumes = seen.volumes
    if volumes.problem:
        count = len(seen.nodes)
        return NodeChoice(why=f"0/{count} nodes are available: {volumes.problem}.")
    selected = [n for n in seen.nodes if n["metadata"]["name"] == volumes.selected]
    if selected:
        choice = choose_node(pod, selected, seen.bound, volumes.obstacle)
        if choice.node:
            return choice
    return choose_node(pod, seen.nodes, seen.bound, volumes.obstacle)


def _volume_writes(volumes: VolumeConstraints, node: Json) -> tuple[Write, ...]:
    """Reserve available volumes; annotate other claims with the node for the provisioner."""
    assigned = volumes.assignments(node)
    writes = (
        _reserve(volumes, w, assigned[w.key])
        if w.key in assigned
        else _select_node(w, node["metadata"]["name"])
        for w in volumes.waiting
    )
    return tuple(w for w in writes if w is not None)


def _reserve(volumes: VolumeConstraints, waiting: UnboundClaim, name: str) -> Merge | None:
    """Set the claimRef; the PersistentVolume controller completes the binding."""
    volume = next(v for v in volumes.available if v["metadata"]["name"] == name)
    if volume["spec"].get("claimRef"):
        return None
    change = reservation(waiting.claim, volume, pre_bound=False)
    return Merge(PERSISTENT_VOLUMES, name, change)


def _select_node(waiting: UnboundClaim, node: str) -> Merge | None:
    if labels.annotation(waiting.claim, labels.SELECTED_NODE) == node:
        return None
    meta, change = waiting.claim["metadata"], {labels.SELECTED_NODE: node}
    annotations = {"metadata": {"annotations": change}}
    return Merge(PERSISTENT_VOLUME_CLAIMS, meta["name"], annotations, meta["namespace"])


def describe(move: SchedulerMove) -> Json | None:
    """The PodScheduled condition of a pod that no node fits."""
    if not isinstance(move, Wait) or move.reason != SchedulerReason.UNSCHEDULABLE:
        return None
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": str(SchedulerReason.UNSCHEDULABLE),
        "message": move.message,
    }
    return {"phase": "Pending", "conditions": [condition]}
