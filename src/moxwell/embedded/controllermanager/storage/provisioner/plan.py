"""When a volume is provisioned for a claim, and when a released volume is deleted. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.controllermanager.storage.persistentvolume.plan import waits_for_consumer
from moxwell.embedded.controllermanager.storage.plugin import VolumeRequest
from moxwell.embedded.controllermanager.storage.provisioner.request import (
    is_allowed,
    volume_request,
)
from moxwell.runtime.move import Done, Wait

Json = dict[str, Any]
RETRY_SECONDS = 5.0


class ProvisionerReason(StrEnum):
    """Reasons of the events of claims and volumes."""

    SUCCEEDED = "ProvisioningSucceeded"
    FAILED = "ProvisioningFailed"
    FAILED_DELETE = "VolumeFailedDelete"
    IN_USE = "VolumeInUse"
    ATTACHED = "VolumeAttached"


@dataclass(frozen=True, slots=True)
class DataSource:
    """The handle that a claim is cloned or restored from; ``problem`` if there is none yet."""

    volume: str = ""
    snapshot: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ObservedProvisioning:
    """``segments`` are those of the selected node, or of all nodes that have the driver."""

    driver: str
    storage_class: Json | None = None
    exists: bool = False  # the PersistentVolume of the claim
    segments: tuple[Mapping[str, str], ...] = ()
    source: DataSource = field(default_factory=DataSource)


@dataclass(frozen=True, slots=True)
class ProvisionVolume:
    """Let the driver create a volume, then create its PersistentVolume."""

    request: VolumeRequest
    claim: Json = field(repr=False)
    storage_class: Json = field(repr=False)
    selected_node: str = ""


ProvisionMove = ProvisionVolume | Wait | Done


def next_move(claim: Json, seen: ObservedProvisioning) -> ProvisionMove:
    """Provision a claim as soon as its class and, where it waits, its node are known."""
    storage_class, selected = seen.storage_class, labels.annotation(claim, labels.SELECTED_NODE)
    if storage_class is None or (waits_for_consumer(storage_class) and not selected):
        return Done()
    if seen.exists:
        return Done()
    segments = [s for s in seen.segments if is_allowed(storage_class, s)]
    if not segments:
        where = f"node {selected} does not have" if selected else "no node has"
        message = f"{where} the driver {seen.driver} yet"
        return Wait(ProvisionerReason.FAILED, message, RETRY_SECONDS)
    if seen.source.problem:
        return Wait(ProvisionerReason.FAILED, seen.source.problem, RETRY_SECONDS)
    request = replace(
        volume_request(claim, storage_class, segments),
        from_volume=seen.source.volume,
        from_snapshot=seen.source.snapshot,
    )
    return ProvisionVolume(request, claim, storage_class, selected)


def failure_message(storage_class: Json | None, why: object) -> str:
    """The message of a ProvisioningFailed event."""
    name = (storage_class or {"metadata": {"name": ""}})["metadata"]["name"]
    return f'failed to provision volume with StorageClass "{name}": {why}'


@dataclass(frozen=True, slots=True)
class DeleteProvisionedVolume:
    """Let the driver delete a volume; ``delete_object``: the PersistentVolume, too."""

    name: str
    handle: str
    delete_object: bool

    @property
    def final(self) -> bool:
        """The last move for a PersistentVolume that is being deleted."""
        return not self.delete_object


ReclaimMove = DeleteProvisionedVolume | Wait | Done


def next_reclaim(volume: Json, attached: bool) -> ReclaimMove:
    """Delete the volume of a PersistentVolume that is released and has the policy Delete."""
    deleting = "deletionTimestamp" in volume["metadata"]
    phase = labels.phase(volume)
    free = phase in ("Released", "Failed") or (deleting and phase == "Available")
    if not free:
        return Wait(ProvisionerReason.IN_USE)
    if volume["spec"].get("persistentVolumeReclaimPolicy") != "Delete":
        return Done()
    if attached:
        return Wait(ProvisionerReason.ATTACHED, requeue_after=RETRY_SECONDS)
    handle = volume["spec"]["csi"]["volumeHandle"]
    return DeleteProvisionedVolume(volume["metadata"]["name"], handle, delete_object=not deleting)
