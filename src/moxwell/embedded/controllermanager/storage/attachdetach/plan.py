"""
Which volumes are attached to which nodes. Pure.

A pod on a node needs its volumes there until its object is gone, because the kubelet unmounts
before it lets the pod be deleted. A volume that is attached to another node is waited for and never
taken away.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from moxwell.embedded.controllermanager.resources import VOLUME_ATTACHMENTS
from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.reconciler import Note
from moxwell.runtime.writes import Create, Delete, Writes

Json = dict[str, Any]
CHECK_SECONDS = 3.0
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class AttachReason(StrEnum):
    """Reasons of the events of a pod and of the moves."""

    ATTACHED = "SuccessfulAttachVolume"
    FAILED = "FailedAttachVolume"
    WAITING = "WaitingForAttach"


@dataclass(frozen=True, slots=True)
class ObservedPodVolumes:
    """
    What a pod's volumes need.

    ``volumes`` are those that must be attached; ``unbound`` counts claims without a volume;
    ``announced`` are volumes whose success was reported for this pod.
    """

    volumes: tuple[Json, ...] = ()
    attachments: tuple[Json, ...] = ()
    unbound: int = 0
    announced: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AnnounceAttached:
    """Report once for a pod that volumes are attached."""

    pod_uid: str
    volumes: tuple[str, ...]


AttachMove = Writes | AnnounceAttached | Wait | Done


def needs_volumes(pod: Json) -> bool:
    """Whether the pod is on a node, has claims and is not finished."""
    on_node = bool(pod["spec"].get("nodeName") and labels.claims_of(pod))
    return on_node and not labels.is_finished(pod)


def next_move(pod: Json, seen: ObservedPodVolumes) -> AttachMove:
    """Create missing VolumeAttachments; wait until all are attached; report it once."""
    node = pod["spec"]["nodeName"]
    missing = [v for v in seen.volumes if not _attachments_of(v, seen)]
    if missing:
        creates = (Create(new_attachment(v, node), VOLUME_ATTACHMENTS) for v in missing)
        return Writes(tuple(creates), requeue_after=CHECK_SECONDS)
    attached = [v["metadata"]["name"] for v in seen.volumes if is_attached(_on(v, node, seen))]
    fresh = tuple(name for name in attached if name not in seen.announced)
    if fresh:
        return AnnounceAttached(pod["metadata"]["uid"], fresh)
    if seen.unbound or len(attached) < len(seen.volumes):
        return Wait(AttachReason.WAITING, requeue_after=CHECK_SECONDS)
    return Done()


def _attachments_of(volume: Json, seen: ObservedPodVolumes) -> list[Json]:
    name = volume["metadata"]["name"]
    return [a for a in seen.attachments if labels.attached_volume(a) == name]


def _on(volume: Json, node: str, seen: ObservedPodVolumes) -> Json | None:
    found = _attachments_of(volume, seen)
    return next((a for a in found if a["spec"]["nodeName"] == node), None)


def is_attached(attachment: Json | None) -> bool:
    return bool(((attachment or {}).get("status") or {}).get("attached"))


def new_attachment(volume: Json, node: str) -> Json:
    """The VolumeAttachment of a volume and a node."""
    csi = volume["spec"]["csi"]
    name = labels.attachment_name(csi["driver"], csi["volumeHandle"], node)
    return {
        "apiVersion": VOLUME_ATTACHMENTS.api_version,
        "kind": VOLUME_ATTACHMENTS.kind,
        "metadata": {"name": name},
        "spec": {
            "attacher": csi["driver"],
            "nodeName": node,
            "source": {"persistentVolumeName": volume["metadata"]["name"]},
        },
    }


def events(pod: Json, seen: ObservedPodVolumes, move: AttachMove) -> list[Note]:
    """Errors of attachments, and successes that are reported for the first time."""
    node = pod["spec"]["nodeName"]
    notes = [n for v in seen.volumes if (n := _failure(v, node, seen)) is not None]
    for name in move.volumes if isinstance(move, AnnounceAttached) else ():
        text = f'AttachVolume.Attach succeeded for volume "{name}"'
        notes.append(Note(AttachReason.ATTACHED, text))
    return notes


def _failure(volume: Json, node: str, seen: ObservedPodVolumes) -> Note | None:
    name, found = volume["metadata"]["name"], _on(volume, node, seen)
    if found is None and _attachments_of(volume, seen):
        text = (
            f'Multi-Attach error for volume "{name}" Volume is already exclusively attached '
            "to one node and can't be attached to another"
        )
        return Note(AttachReason.FAILED, text, "Warning")
    status = (found or {}).get("status") or {}
    error = (status.get("attachError") or {}).get("message")
    if not error or status.get("attached"):
        return None
    text = f'AttachVolume.Attach failed for volume "{name}" : {error}'
    return Note(AttachReason.FAILED, text, "Warning")


@dataclass(frozen=True, slots=True)
class ObservedAttachment:
    """The claim of the attached volume, whether the node works, and the pods of the namespace."""

    claim: str = ""
    node_in_service: bool = False
    pods: Sequence[Json] = ()


def is_in_service(node: Json | None) -> bool:
    """Whether a node exists and is not tainted as out of service."""
    taints = (node or {"spec": {}})["spec"].get("taints") or ()
    return node is not None and not any(t["key"] == OUT_OF_SERVICE for t in taints)


def next_detach(attachment: Json, seen: ObservedAttachment) -> WriteMove:
    """Delete an attachment that no pod on its node needs."""
    if not labels.attached_volume(attachment) or _is_needed(attachment, seen):
        return Done()
    return Writes((Delete(VOLUME_ATTACHMENTS, attachment["metadata"]["name"]),))


def _is_needed(attachment: Json, seen: ObservedAttachment) -> bool:
    if not seen.claim or not seen.node_in_service:
        return False
    node = attachment["spec"]["nodeName"]
    return any(
        needs_volumes(p) and p["spec"]["nodeName"] == node and seen.claim in labels.claims_of(p)
        for p in seen.pods
    )
