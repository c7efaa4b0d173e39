"""
The next moves and the status of a VolumeSnapshot. Pure.

A VolumeSnapshot gets a VolumeSnapshotContent, and the status of the content is copied back. A
deleted snapshot waits until its content is deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from moxwell.embedded.controllermanager.resources import (
    VOLUME_SNAPSHOT_CONTENTS,
    VOLUME_SNAPSHOTS,
)
from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Create, Delete, Writes

Json = dict[str, Any]
RETRY_SECONDS = 5.0
DEFAULT_CLASS = "snapshot.storage.kubernetes.io/is-default-class"
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


class SnapshotReason(StrEnum):
    """Reasons of the events of snapshots and their contents."""

    CREATING = "CreatingSnapshot"
    FAILED = "SnapshotCreationFailed"
    DELETE_FAILED = "SnapshotDeleteError"
    DELETING = "WaitingForContentDeletion"


@dataclass(frozen=True, slots=True)
class ObservedSnapshot:
    """
    The content, or what it would be created from.

    ``problem`` is why there is no source yet; without a problem and a class the source belongs to
    another driver.
    """

    now: datetime
    content: Json | None = None
    problem: str = ""
    snapshot_class: Json | None = None
    handle: str = ""


def content_name(snapshot: Json) -> str:
    return f"snapcontent-{snapshot['metadata']['uid']}"


def next_move(snapshot: Json, seen: ObservedSnapshot) -> WriteMove:
    """Create the content of a snapshot, or delete it with the snapshot."""
    if "deletionTimestamp" in snapshot["metadata"]:
        return _deletion(seen.content)
    if seen.content is not None:
        return Done()
    if seen.problem:
        return Wait(SnapshotReason.FAILED, seen.problem, RETRY_SECONDS)
    if seen.snapshot_class is None:
        return Done()
    body = new_content(snapshot, seen.snapshot_class, seen.handle)
    return Writes((Create(body, VOLUME_SNAPSHOT_CONTENTS),), SnapshotReason.CREATING)


def _deletion(content: Json | None) -> WriteMove:
    if content is None or content["spec"]["deletionPolicy"] == "Retain":
        return Done()
    if "deletionTimestamp" in content["metadata"]:
        return Wait(SnapshotReason.DELETING, requeue_after=RETRY_SECONDS)
    delete = Delete(VOLUME_SNAPSHOT_CONTENTS, content["metadata"]["name"])
    return Writes((delete,), SnapshotReason.DELETING, RETRY_SECONDS)


def new_content(snapshot: Json, snapshot_class: Json, handle: str) -> Json:
    """The content of a snapshot that the driver must take."""
    meta = snapshot["metadata"]
    return {
        "apiVersion": VOLUME_SNAPSHOT_CONTENTS.api_version,
        "kind": VOLUME_SNAPSHOT_CONTENTS.kind,
        "metadata": {"name": content_name(snapshot)},
        "spec": {
            "deletionPolicy": snapshot_class["deletionPolicy"],
            "driver": snapshot_class["driver"],
            "source": {"volumeHandle": handle},
            "volumeSnapshotClassName": snapshot_class["metadata"]["name"],
            "volumeSnapshotRef": {
                "apiVersion": VOLUME_SNAPSHOTS.api_version,
                "kind": VOLUME_SNAPSHOTS.kind,
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
        },
    }


def describe(snapshot: Json, seen: ObservedSnapshot, move: WriteMove) -> Json | None:
    """The status of the content; a problem as an error; None for another driver's source."""
    if "deletionTimestamp" in snapshot["metadata"]:
        return None
    name = content_name(snapshot)
    if seen.content is not None:
        return from_content(name, seen.content)
    if isinstance(move, Wait):
        return {"readyToUse": False, "error": error_entry(move.message, seen.now)}
    if isinstance(move, Writes):
        return {"readyToUse": False, "boundVolumeSnapshotContentName": name, "error": None}
    return None


def from_content(name: str, content: Json) -> Json:
    """The status of a snapshot, from its content."""
    reported: Mapping[str, Any] = content.get("status") or {}
    status: Json = {
        "boundVolumeSnapshotContentName": name,
        "readyToUse": bool(reported.get("readyToUse")),
        "error": reported.get("error"),
    }
    if reported.get("creationTime"):
        created = datetime.fromtimestamp(reported["creationTime"] // 10**9, UTC)
        status["creationTime"] = created.strftime(TIME_FORMAT)
    if reported.get("restoreSize"):
        status["restoreSize"] = labels.quantity(reported["restoreSize"])
    return status


def error_entry(message: str, now: datetime) -> Json:
    return {"message": message, "time": now.strftime(TIME_FORMAT)}
