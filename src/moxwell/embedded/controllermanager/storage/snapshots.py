"""
Snapshots where their CRDs are: the part of snapshot-controller and of the external-snapshotter.

A VolumeSnapshot gets a VolumeSnapshotContent, the content a snapshot of the driver; what the driver
says goes back the same way. Deleting goes down the same ladder, each waiting for the one below.
The surprise: nothing here minds that the CRDs are missing; the loops wait until somebody adds them.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from moxwell.clock import Clock
from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.controllermanager.storage.labels import (
    CLAIMS,
    CONTENTS,
    SNAPSHOT_CLASSES,
    SNAPSHOTS,
    VOLUMES,
    Json,
)
from moxwell.embedded.controllermanager.storage.plugin import Plugin
from moxwell.errors import Conflict, Missing, MoxwellError
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

RETRY_SECONDS = 5.0
DEFAULT = "snapshot.storage.kubernetes.io/is-default-class"
STAMP = "%Y-%m-%dT%H:%M:%SZ"


def _snapshot_of(content: Json) -> list[Key]:
    ref = content["spec"].get("volumeSnapshotRef") or {}
    return [Key(ref["namespace"], ref["name"])] if ref.get("name") else []


class Snapshots:
    """From a VolumeSnapshot to its content, and back what became of it."""

    kind = SNAPSHOTS
    finalizer = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"
    watches: Sequence[Watch] = (Watch(CONTENTS, _snapshot_of),)

    def __init__(self, kube: Kube, plugin: Plugin, clock: Clock) -> None:
        self._kube, self._plugin, self._clock = kube, plugin, clock

    async def reconcile(self, snapshot: Json) -> Outcome[Json]:
        name = _content_name(snapshot)
        content = await self._kube.find(CONTENTS, name)
        if "deletionTimestamp" in snapshot["metadata"]:
            return await self._let_go(content)
        if content is not None:
            return Outcome(described(name, content))
        try:
            body = await self._wanted(snapshot, name)
        except MoxwellError as error:
            status = {"readyToUse": False, "error": told(error, self._clock.now())}
            note = Note("SnapshotCreationFailed", str(error), "Warning")
            return Outcome(status, again=RETRY_SECONDS, notes=(note,))
        if body is None:
            return Outcome(None)  # another driver's
        await self._create(body)
        said = f"Waiting for a snapshot {snapshot['metadata']['name']} to be created by the driver."
        return Outcome(
            {"readyToUse": False, "boundVolumeSnapshotContentName": name, "error": None},
            notes=(Note("CreatingSnapshot", said),),
        )

    async def _create(self, body: Json) -> None:
        try:
            await self._kube.create(body, CONTENTS)
        except Conflict:
            return

    async def _let_go(self, content: Json | None) -> Outcome[Json]:
        if content is None or content["spec"]["deletionPolicy"] == "Retain":
            return Outcome(None, settled=True)
        if "deletionTimestamp" not in content["metadata"]:
            await self._kube.delete(CONTENTS, content["metadata"]["name"])
        return Outcome(None, again=RETRY_SECONDS)

    async def _wanted(self, snapshot: Json, name: str) -> Json | None:
        source = snapshot["spec"]["source"].get("persistentVolumeClaimName")
        if not source:
            raise Missing("only snapshots of a claim are made here")
        claim = await self._kube.get(CLAIMS, source, snapshot["metadata"]["namespace"])
        if not claim["spec"].get("volumeName"):
            raise Missing(f"claim {source} is not bound yet")
        volume = await self._kube.get(VOLUMES, claim["spec"]["volumeName"])
        csi = volume["spec"].get("csi") or {}
        if csi.get("driver") != self._plugin.name:
            return None
        klass = await self._class(snapshot["spec"].get("volumeSnapshotClassName"))
        return content_of(snapshot, name, klass, csi["volumeHandle"])

    async def _class(self, name: str | None) -> Json:
        if name:
            return await self._kube.get(SNAPSHOT_CLASSES, name)
        for klass in (await self._kube.list(SNAPSHOT_CLASSES)).items:
            if klass["driver"] == self._plugin.name and labels.annotation(klass, DEFAULT) == "true":
                return klass
        raise Missing("no VolumeSnapshotClass is named, and none of the driver is the default")


class Contents:
    """From a content to a snapshot of the driver."""

    kind = CONTENTS
    finalizer = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
    watches: Sequence[Watch] = ()

    def __init__(self, kube: Kube, plugin: Plugin, clock: Clock) -> None:
        self._kube, self._plugin, self._clock = kube, plugin, clock

    def concerns(self, content: Json) -> bool:
        return bool(content["spec"]["driver"] == self._plugin.name)

    async def reconcile(self, content: Json) -> Outcome[Json]:
        deleting = "deletionTimestamp" in content["metadata"]
        status = content.get("status") or {}
        if not deleting and status.get("readyToUse"):
            return Outcome(None)
        try:
            return await (self._remove(content) if deleting else self._take(content))
        except MoxwellError as error:
            failed = {"readyToUse": False, "error": told(error, self._clock.now())}
            reason = "SnapshotDeleteError" if deleting else "SnapshotCreationFailed"
            note = Note(reason, str(error), "Warning")
            return Outcome(failed, again=RETRY_SECONDS, notes=(note,))

    async def _take(self, content: Json) -> Outcome[Json]:
        source = content["spec"]["source"]
        if source.get("snapshotHandle"):
            return Outcome({"snapshotHandle": source["snapshotHandle"], "readyToUse": True})
        klass = content["spec"].get("volumeSnapshotClassName") or ""
        found = await self._kube.find(SNAPSHOT_CLASSES, klass) if klass else None
        given = (found or {}).get("parameters") or {}
        plain = {k: v for k, v in given.items() if not k.startswith(labels.OWN_PREFIX)}
        uid = content["spec"]["volumeSnapshotRef"]["uid"]
        taken = await self._plugin.snapshot(f"snapshot-{uid}", source["volumeHandle"], plain)
        status = {
            "snapshotHandle": taken.handle,
            "creationTime": taken.made * 10**9,
            "restoreSize": taken.size,
            "readyToUse": taken.ready,
            "error": None,
        }
        return Outcome(status, again=None if taken.ready else RETRY_SECONDS)

    async def _remove(self, content: Json) -> Outcome[Json]:
        handle = (content.get("status") or {}).get("snapshotHandle")
        if handle and content["spec"]["deletionPolicy"] == "Delete":
            await self._plugin.forget_snapshot(handle)
        return Outcome(None, settled=True)


def _content_name(snapshot: Json) -> str:
    return f"snapcontent-{snapshot['metadata']['uid']}"


def content_of(snapshot: Json, name: str, klass: Json, handle: str) -> Json:
    """The content of a snapshot that is to be taken."""
    meta = snapshot["metadata"]
    return {
        "apiVersion": CONTENTS.api_version,
        "kind": CONTENTS.kind,
        "metadata": {"name": name},
        "spec": {
            "deletionPolicy": klass["deletionPolicy"],
            "driver": klass["driver"],
            "source": {"volumeHandle": handle},
            "volumeSnapshotClassName": klass["metadata"]["name"],
            "volumeSnapshotRef": {
                "apiVersion": SNAPSHOTS.api_version,
                "kind": SNAPSHOTS.kind,
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
        },
    }


def described(name: str, content: Json) -> Json:
    """What a snapshot says, from its content."""
    have: Mapping[str, Any] = content.get("status") or {}
    status: Json = {
        "boundVolumeSnapshotContentName": name,
        "readyToUse": bool(have.get("readyToUse")),
        "error": have.get("error"),
    }
    if have.get("creationTime"):
        made = datetime.fromtimestamp(have["creationTime"] // 10**9, UTC)
        status["creationTime"] = made.strftime(STAMP)
    if have.get("restoreSize"):
        status["restoreSize"] = labels.quantity(have["restoreSize"])
    return status


def told(error: MoxwellError, now: datetime) -> Json:
    return {"message": str(error), "time": now.strftime(STAMP)}
