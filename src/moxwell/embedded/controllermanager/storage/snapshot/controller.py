"""
The snapshot-controller and the external-snapshotter of CSI.

The CRDs of snapshots may be missing; their caches are optional and fill when the CRDs are added.
"""

from collections.abc import Sequence
from typing import Any

from moxwell.clock import Clock
from moxwell.embedded.controllermanager.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    VOLUME_SNAPSHOT_CLASSES,
    VOLUME_SNAPSHOT_CONTENTS,
    VOLUME_SNAPSHOTS,
)
from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.controllermanager.storage.plugin import CSIPlugin
from moxwell.embedded.controllermanager.storage.snapshot import content_plan
from moxwell.embedded.controllermanager.storage.snapshot.content_plan import (
    ContentMove,
    CreateSnapshot,
    DeleteSnapshot,
    ObservedContent,
)
from moxwell.embedded.controllermanager.storage.snapshot.plan import (
    DEFAULT_CLASS,
    RETRY_SECONDS,
    ObservedSnapshot,
    SnapshotReason,
    content_name,
    describe,
    error_entry,
    next_move,
)
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.errors import Busy, MoxwellError
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.key import Key
from moxwell.runtime.move import Wait
from moxwell.runtime.reconciler import Note, Reconciler
from moxwell.runtime.watches import Watch

Json = dict[str, Any]
FINALIZER = "snapshot.storage.kubernetes.io/"


class SnapshotDeletionFailed(Busy):
    """The driver could not delete a snapshot."""

    reason = SnapshotReason.DELETE_FAILED
    retry_seconds = RETRY_SECONDS


def _snapshot_of(content: Json) -> list[Key]:
    ref = content["spec"].get("volumeSnapshotRef") or {}
    return [Key(ref["namespace"], ref["name"])] if ref.get("name") else []


class SnapshotController(WritingReconciler[Json, ObservedSnapshot, Json]):
    """Reconciles VolumeSnapshots of claims of the driver."""

    kind = VOLUME_SNAPSHOTS
    finalizer = f"{FINALIZER}volumesnapshot-bound-protection"
    watches: Sequence[Watch] = (Watch(VOLUME_SNAPSHOT_CONTENTS, _snapshot_of),)

    def __init__(self, kube: Kube, plugin: CSIPlugin, clock: Clock) -> None:
        super().__init__(kube)
        self._plugin, self._clock = plugin, clock

    async def see(self, snapshot: Json, reader: Reader) -> ObservedSnapshot:
        now = self._clock.now()
        content = await reader.find(VOLUME_SNAPSHOT_CONTENTS, content_name(snapshot))
        if content is not None or "deletionTimestamp" in snapshot["metadata"]:
            return ObservedSnapshot(now, content)
        csi, problem = await _source(snapshot, reader)
        if problem or csi.get("driver") != self._plugin.name:
            return ObservedSnapshot(now, problem=problem)
        found = await self._class(snapshot["spec"].get("volumeSnapshotClassName") or "", reader)
        if isinstance(found, str):
            return ObservedSnapshot(now, problem=found)
        return ObservedSnapshot(now, snapshot_class=found, handle=csi["volumeHandle"])

    async def _class(self, name: str, reader: Reader) -> Json | str:
        """The class of a name, or the default of the driver; a message if there is none."""
        if name:
            named = await reader.find(VOLUME_SNAPSHOT_CLASSES, name)
            return named or f"VolumeSnapshotClass {name} does not exist"
        for found in (await reader.list(VOLUME_SNAPSHOT_CLASSES)).items:
            default = labels.annotation(found, DEFAULT_CLASS) == "true"
            if found["driver"] == self._plugin.name and default:
                return found
        return "the snapshot names no VolumeSnapshotClass, and the driver has no default class"

    def plan(self, snapshot: Json, seen: ObservedSnapshot) -> WriteMove:
        return next_move(snapshot, seen)

    def describe(self, snapshot: Json, seen: ObservedSnapshot, move: WriteMove) -> Json | None:
        return describe(snapshot, seen, move)

    def events(self, snapshot: Json, seen: ObservedSnapshot, move: WriteMove) -> Sequence[Note]:
        reason = getattr(move, "reason", "")
        if reason == SnapshotReason.CREATING:
            name = snapshot["metadata"]["name"]
            text = f"Waiting for a snapshot {name} to be created by the driver."
            return (Note(SnapshotReason.CREATING, text),)
        if isinstance(move, Wait) and reason == SnapshotReason.FAILED:
            return (Note(reason, move.message, "Warning"),)
        return ()


async def _source(snapshot: Json, reader: Reader) -> tuple[Json, str]:
    """The CSI source of the claim's volume, or why there is none."""
    name = snapshot["spec"]["source"].get("persistentVolumeClaimName")
    if not name:
        return {}, "only a snapshot of a PersistentVolumeClaim can be taken"
    namespace = snapshot["metadata"]["namespace"]
    claim = await reader.find(PERSISTENT_VOLUME_CLAIMS, name, namespace)
    bound = (claim or {}).get("spec", {}).get("volumeName")
    volume = await reader.find(PERSISTENT_VOLUMES, bound) if bound else None
    if volume is None:
        missing = "does not exist" if claim is None else "is not bound yet"
        return {}, f"claim {name} {missing}"
    return volume["spec"].get("csi") or {}, ""


class SnapshotContentController(Reconciler[Json, ObservedContent, ContentMove, Json]):
    """Reconciles VolumeSnapshotContents of the driver."""

    kind = VOLUME_SNAPSHOT_CONTENTS
    finalizer = f"{FINALIZER}volumesnapshotcontent-bound-protection"

    def __init__(self, kube: Kube, plugin: CSIPlugin, clock: Clock) -> None:
        self._kube, self._plugin, self._clock = kube, plugin, clock

    def is_ours(self, content: Json) -> bool:
        """Whether the snapshot is one of this driver."""
        return bool(content["spec"]["driver"] == self._plugin.name)

    async def see(self, content: Json, reader: Reader) -> ObservedContent:
        name, status = (
            content["spec"].get("volumeSnapshotClassName") or "",
            content.get("status") or {},
        )
        found = await reader.find(VOLUME_SNAPSHOT_CLASSES, name) if name else None
        return ObservedContent(
            self._clock.now(),
            found,
            str(status.get("snapshotHandle") or ""),
            bool(status.get("readyToUse")),
            str((status.get("error") or {}).get("message") or ""),
        )

    def plan(self, content: Json, seen: ObservedContent) -> ContentMove:
        return content_plan.next_move(content, seen)

    async def act(self, move: ContentMove) -> Any:
        if isinstance(move, CreateSnapshot):
            return await self._create(move)
        if isinstance(move, DeleteSnapshot):
            try:
                await self._plugin.delete_snapshot(move.handle)
            except MoxwellError as error:
                raise SnapshotDeletionFailed(str(error)) from error
        return None

    async def _create(self, move: CreateSnapshot) -> Any:
        """An error is recorded, not raised: the snapshot-controller copies it to the snapshot."""
        try:
            taken = await self._plugin.create_snapshot(move.name, move.source, move.parameters)
        except MoxwellError as error:
            if str(error) == move.known_error:
                return None
            status = {"readyToUse": False, "error": error_entry(str(error), move.now)}
        else:
            status = content_plan.answer(taken)
        return await self._kube.merge(
            self.kind, move.content, {"status": status}, subresource="status"
        )

    def describe(self, content: Json, seen: ObservedContent, move: ContentMove) -> Json | None:
        return content_plan.describe(content, seen)

    def events(self, content: Json, seen: ObservedContent, move: ContentMove) -> Sequence[Note]:
        """The recorded error of the last call, while the snapshot is tried again."""
        if isinstance(move, CreateSnapshot) and seen.error:
            return (Note(SnapshotReason.FAILED, seen.error, "Warning"),)
        return ()
