"""
The next moves of a VolumeSnapshotContent. Pure.

``status`` of a content is where the snapshot API keeps the driver's answer, the handle above all.
The controller writes it when the driver has answered and observes it as the record of that call;
taking the snapshot again under the same name returns the same snapshot.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.controllermanager.storage.plugin import DriverSnapshot
from moxwell.embedded.controllermanager.storage.snapshot.plan import RETRY_SECONDS
from moxwell.runtime.move import Done

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ObservedContent:
    """The class of a content and the recorded answer of the driver."""

    now: datetime
    snapshot_class: Json | None = None
    handle: str = ""
    ready: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class CreateSnapshot:
    """Let the driver take a snapshot, and record the answer."""

    content: str
    name: str
    source: str
    parameters: Mapping[str, str]
    known_error: str
    now: datetime
    requeue_after: float = RETRY_SECONDS


@dataclass(frozen=True, slots=True)
class DeleteSnapshot:
    """Let the driver delete a snapshot."""

    handle: str
    final = True


ContentMove = CreateSnapshot | DeleteSnapshot | Done


def next_move(content: Json, seen: ObservedContent) -> ContentMove:
    """Take the snapshot, or delete it if the deletion policy says so."""
    spec = content["spec"]
    if "deletionTimestamp" in content["metadata"]:
        delete = seen.handle and spec["deletionPolicy"] == "Delete"
        return DeleteSnapshot(seen.handle) if delete else Done()
    if seen.ready or spec["source"].get("snapshotHandle"):
        return Done()
    given = (seen.snapshot_class or {}).get("parameters") or {}
    parameters = {k: v for k, v in given.items() if not k.startswith(labels.RESERVED_PREFIX)}
    return CreateSnapshot(
        content["metadata"]["name"],
        f"snapshot-{spec['volumeSnapshotRef']['uid']}",
        spec["source"]["volumeHandle"],
        parameters,
        seen.error,
        seen.now,
    )


def describe(content: Json, seen: ObservedContent) -> Json | None:
    """The status of a content that names an existing snapshot; other status is the driver's."""
    handle = content["spec"]["source"].get("snapshotHandle")
    if not handle or seen.ready or "deletionTimestamp" in content["metadata"]:
        return None
    return {"snapshotHandle": handle, "readyToUse": True}


def answer(snapshot: DriverSnapshot) -> Json:
    """The driver's answer as the status of a content."""
    return {
        "snapshotHandle": snapshot.handle,
        "creationTime": snapshot.created * 10**9,
        "restoreSize": snapshot.size,
        "readyToUse": snapshot.ready,
        "error": None,
    }
