"""
When the volume of a claim is expanded. Pure.

The size of the PersistentVolume tells whether the driver has expanded the volume; the file system
is the kubelet's part.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from moxwell.embedded.controllermanager.storage import labels
from moxwell.runtime.move import Done, Wait

Json = dict[str, Any]
RETRY_SECONDS = 5.0
RESIZE_PENDING = "FileSystemResizePending"


class ResizerReason(StrEnum):
    """Reasons of the events of a claim."""

    RESIZING = "Resizing"
    SUCCEEDED = "VolumeResizeSuccessful"
    FAILED = "VolumeResizeFailed"
    FILE_SYSTEM = "FileSystemResizeRequired"


@dataclass(frozen=True, slots=True)
class ObservedExpansion:
    """The volume of the claim, if it is the driver's, and whether the class allows expansion."""

    volume: Json | None = None
    allowed: bool = False


@dataclass(frozen=True, slots=True)
class ExpandVolume:
    """Let the driver expand a volume; then record the size in PersistentVolume and claim."""

    volume: str
    handle: str
    size: int
    block: bool
    claim: Json = field(repr=False)


ResizerMove = ExpandVolume | Wait | Done


def next_move(claim: Json, seen: ObservedExpansion) -> ResizerMove:
    """Expand a volume that is smaller than the claim requests."""
    size, volume = labels.requested_size(claim), seen.volume
    if volume is None or labels.storage_size(volume["spec"]["capacity"]) >= size:
        return Done()
    if not seen.allowed:
        text = "the storage class of the claim does not have allowVolumeExpansion"
        return Wait(ResizerReason.FAILED, text)
    handle, name = volume["spec"]["csi"]["volumeHandle"], volume["metadata"]["name"]
    return ExpandVolume(name, handle, size, labels.is_block(volume), claim)


def claim_status(size: int, now: datetime, *, node_expands: bool) -> Json:
    """The claim's status after the driver has expanded the volume."""
    if not node_expands:
        return {"capacity": {"storage": labels.quantity(size)}}
    pending = {
        "type": RESIZE_PENDING,
        "status": "True",
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "message": "Waiting for user to (re-)start a pod to finish file system resize of "
        "volume on node.",
    }
    return {"conditions": [pending]}
