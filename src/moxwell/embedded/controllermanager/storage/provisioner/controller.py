"""The external-provisioner of CSI: creates volumes for claims and deletes released ones."""

from collections.abc import Sequence
from typing import Any

from moxwell.embedded.controllermanager.resources import (
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    VOLUME_SNAPSHOT_CONTENTS,
    VOLUME_SNAPSHOTS,
)
from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.controllermanager.storage.plugin import CSIPlugin, StorageExhausted
from moxwell.embedded.controllermanager.storage.provisioner.plan import (
    RETRY_SECONDS,
    DataSource,
    DeleteProvisionedVolume,
    ObservedProvisioning,
    ProvisionerReason,
    ProvisionMove,
    ProvisionVolume,
    ReclaimMove,
    failure_message,
    next_move,
    next_reclaim,
)
from moxwell.embedded.controllermanager.storage.provisioner.request import (
    persistent_volume,
    volume_name,
)
from moxwell.embedded.controllermanager.storage.topology import segments
from moxwell.errors import Busy, MoxwellError
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key
from moxwell.runtime.move import Wait
from moxwell.runtime.reconciler import Note, Reconciler
from moxwell.runtime.watches import Watch
from moxwell.runtime.writes import Create, Delete, Merge

Json = dict[str, Any]


class ProvisioningFailed(Busy):
    """The driver could not create a volume."""

    reason = ProvisionerReason.FAILED
    retry_seconds = RETRY_SECONDS


class VolumeDeletionFailed(Busy):
    """The driver could not delete a volume."""

    reason = ProvisionerReason.FAILED_DELETE
    retry_seconds = RETRY_SECONDS


class ExternalProvisioner(Reconciler[Json, ObservedProvisioning, ProvisionMove, Json]):
    """Reconciles unbound PersistentVolumeClaims of the driver; nodes come from caches."""

    kind = PERSISTENT_VOLUME_CLAIMS

    def __init__(self, kube: Kube, plugin: CSIPlugin, caches: Caches) -> None:
        self._kube, self._plugin = kube, plugin
        self._nodes, self._csi_nodes = caches.of(NODES), caches.of(CSI_NODES)

    def is_ours(self, claim: Json) -> bool:
        """Whether the claim waits for a volume of this driver."""
        requested = labels.annotation(claim, labels.PROVISIONER) == self._plugin.name
        return requested and not claim["spec"].get("volumeName")

    async def see(self, claim: Json, reader: Reader) -> ObservedProvisioning:
        class_name = claim["spec"].get("storageClassName") or ""
        storage_class = await reader.find(STORAGE_CLASSES, class_name)
        if storage_class is None:
            return ObservedProvisioning(self._plugin.name)
        volume = await reader.find(PERSISTENT_VOLUMES, volume_name(claim))
        selected = labels.annotation(claim, labels.SELECTED_NODE)
        found = segments(self._nodes, self._csi_nodes, self._plugin.name, selected)
        source = await _source(claim, reader)
        return ObservedProvisioning(
            self._plugin.name, storage_class, volume is not None, tuple(found), source
        )

    def plan(self, claim: Json, seen: ObservedProvisioning) -> ProvisionMove:
        return next_move(claim, seen)

    async def act(self, move: ProvisionMove) -> Any:
        if not isinstance(move, ProvisionVolume):
            return
        try:
            created = await self._plugin.create(move.request)
        except MoxwellError as error:
            if isinstance(error, StorageExhausted) and move.selected_node:
                await self._reschedule(move.claim)
            raise ProvisioningFailed(failure_message(move.storage_class, error)) from error
        body = persistent_volume(
            move.claim, move.storage_class, move.request, created, self._plugin.name
        )
        await Create(body, PERSISTENT_VOLUMES).perform(self._kube)

    async def _reschedule(self, claim: Json) -> None:
        """Clear the selected node: the scheduler selects another."""
        meta, change = (
            claim["metadata"],
            {"metadata": {"annotations": {labels.SELECTED_NODE: None}}},
        )
        merge = Merge(
            PERSISTENT_VOLUME_CLAIMS, meta["name"], change, meta["namespace"], missing_ok=True
        )
        await merge.perform(self._kube)

    def describe(self, claim: Json, seen: ObservedProvisioning, move: ProvisionMove) -> None:
        return None

    def events(
        self, claim: Json, seen: ObservedProvisioning, move: ProvisionMove
    ) -> Sequence[Note]:
        if isinstance(move, ProvisionVolume):
            text = f"Successfully provisioned volume {move.request.name}"
            return (Note(ProvisionerReason.SUCCEEDED, text),)
        if isinstance(move, Wait):
            text = failure_message(seen.storage_class, move.message)
            return (Note(move.reason, text, "Warning"),)
        return ()


async def _source(claim: Json, reader: Reader) -> DataSource:
    source = claim["spec"].get("dataSource") or claim["spec"].get("dataSourceRef")
    if not source:
        return DataSource()
    namespace, name = claim["metadata"]["namespace"], source["name"]
    if source["kind"] == "PersistentVolumeClaim":
        return await _claim_source(name, namespace, reader)
    return await _snapshot_source(name, namespace, reader)


async def _claim_source(name: str, namespace: str, reader: Reader) -> DataSource:
    claim = await reader.find(PERSISTENT_VOLUME_CLAIMS, name, namespace)
    bound = (claim or {}).get("spec", {}).get("volumeName") or ""
    volume = await reader.find(PERSISTENT_VOLUMES, bound) if bound else None
    if not volume or "csi" not in volume["spec"]:
        return DataSource(problem=f"the source claim {name} is not bound yet")
    return DataSource(volume=str(volume["spec"]["csi"]["volumeHandle"]))


async def _snapshot_source(name: str, namespace: str, reader: Reader) -> DataSource:
    snapshot = await reader.find(VOLUME_SNAPSHOTS, name, namespace)
    status = (snapshot or {}).get("status") or {}
    bound = status.get("boundVolumeSnapshotContentName")
    content = await reader.find(VOLUME_SNAPSHOT_CONTENTS, bound) if bound else None
    handle = ((content or {}).get("status") or {}).get("snapshotHandle")
    if not status.get("readyToUse") or not handle:
        return DataSource(problem=f"the source snapshot {name} is not ready to use")
    return DataSource(snapshot=str(handle))


class VolumeReclaimer(Reconciler[Json, bool, ReclaimMove, Json]):
    """Reconciles PersistentVolumes of the driver; sees whether a volume is attached, live."""

    kind = PERSISTENT_VOLUMES
    finalizer = labels.PROVISIONER_FINALIZER
    watches: Sequence[Watch] = (
        Watch(VOLUME_ATTACHMENTS, lambda a: [Key("", labels.attached_volume(a))]),
    )

    def __init__(self, kube: Kube, plugin: CSIPlugin) -> None:
        self._kube, self._plugin = kube, plugin

    def is_ours(self, volume: Json) -> bool:
        """Whether the volume was provisioned by this driver."""
        return labels.annotation(volume, labels.PROVISIONED_BY) == self._plugin.name

    async def see(self, volume: Json, reader: Reader) -> bool:
        if labels.phase(volume) == "Bound":
            return True  # not deleted in any case
        attachments = (await reader.list(VOLUME_ATTACHMENTS)).items
        return any(labels.attached_volume(a) == volume["metadata"]["name"] for a in attachments)

    def plan(self, volume: Json, seen: bool) -> ReclaimMove:
        return next_reclaim(volume, seen)

    async def act(self, move: ReclaimMove) -> Any:
        if not isinstance(move, DeleteProvisionedVolume):
            return
        try:
            await self._plugin.delete(move.handle)
        except MoxwellError as error:
            raise VolumeDeletionFailed(str(error)) from error
        if move.delete_object:
            await Delete(PERSISTENT_VOLUMES, move.name).perform(self._kube)

    def describe(self, volume: Json, seen: bool, move: ReclaimMove) -> None:
        return None
