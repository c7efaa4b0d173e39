"""
The next move of a VolumeAttachment, and its status while the driver cannot be called. Pure.

``status`` of a VolumeAttachment is where Kubernetes keeps the driver's answer for the kubelet and
the attach-detach controller. The attacher writes it when the driver has answered and observes
``attached`` as the record of that call; publishing again would be harmless. The node ID is kept in
an annotation, as the CSINode may be gone when the volume is detached.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.controllermanager.storage.plugin import PublishRequest
from moxwell.runtime.move import Done, Wait

Json = dict[str, Any]
RETRY_SECONDS = 3.0


class AttacherReason(StrEnum):
    """Reasons of the moves and failures of a VolumeAttachment."""

    VOLUME_NOT_FOUND = "VolumeNotFound"
    DRIVER_NOT_REGISTERED = "DriverNotRegistered"
    DETACH_FAILED = "DetachFailed"


@dataclass(frozen=True, slots=True)
class ObservedVolumeAttachment:
    """The volume, the node's ID for the driver, and the recorded answer of the driver."""

    now: datetime
    driver: str
    volume: Json | None = None
    node_id: str = ""
    attached: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class PublishVolume:
    """Record the node ID, let the driver attach the volume, and record the answer."""

    name: str
    request: PublishRequest
    record_node: bool
    known_error: str
    now: datetime
    requeue_after: float = RETRY_SECONDS


@dataclass(frozen=True, slots=True)
class UnpublishVolume:
    """Let the driver detach the volume."""

    name: str
    handle: str
    node: str
    known_error: str
    now: datetime
    final = True


AttacherMove = PublishVolume | UnpublishVolume | Wait | Done


def next_move(attachment: Json, seen: ObservedVolumeAttachment) -> AttacherMove:
    """Publish, or unpublish an attachment that is being deleted."""
    recorded, name = labels.annotation(attachment, labels.NODE_ID), attachment["metadata"]["name"]
    if "deletionTimestamp" in attachment["metadata"]:
        if seen.volume is None or not recorded:
            return Done()
        handle = seen.volume["spec"]["csi"]["volumeHandle"]
        return UnpublishVolume(name, handle, recorded, seen.error, seen.now)
    if seen.attached:
        return Done()
    if seen.volume is None:
        text = f"volume {labels.attached_volume(attachment)} does not exist"
        return Wait(AttacherReason.VOLUME_NOT_FOUND, text, RETRY_SECONDS)
    if not seen.node_id:
        text = f"node {attachment['spec']['nodeName']} does not have the CSI driver {seen.driver}"
        return Wait(AttacherReason.DRIVER_NOT_REGISTERED, text, RETRY_SECONDS)
    request = publish_request(seen.volume, seen.node_id)
    return PublishVolume(name, request, recorded != seen.node_id, seen.error, seen.now)


def publish_request(volume: Json, node: str) -> PublishRequest:
    """How a volume is attached to a node."""
    csi = volume["spec"]["csi"]
    return PublishRequest(
        handle=csi["volumeHandle"],
        node=node,
        context=csi.get("volumeAttributes") or {},
        fs_type=csi.get("fsType") or "",
        block=labels.is_block(volume),
        read_only=bool(csi.get("readOnly")),
        modes=tuple(volume["spec"]["accessModes"]),
    )


def describe(seen: ObservedVolumeAttachment, move: AttacherMove) -> Json | None:
    """The reason why the driver is not called; None leaves what the last call recorded."""
    if not isinstance(move, Wait) or seen.error == move.message:
        return None
    return {"attached": False, "attachError": error_entry(move.message, seen.now)}


def error_entry(message: str, now: datetime) -> Json:
    return {"message": message, "time": now.strftime("%Y-%m-%dT%H:%M:%SZ")}
