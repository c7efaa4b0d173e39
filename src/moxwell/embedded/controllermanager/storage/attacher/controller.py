"""The external-attacher of CSI: lets the driver attach and detach volumes."""

from typing import Any

from moxwell.clock import Clock
from moxwell.embedded.controllermanager.resources import (
    CSI_NODES,
    PERSISTENT_VOLUMES,
    VOLUME_ATTACHMENTS,
)
from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.controllermanager.storage.attacher.plan import (
    RETRY_SECONDS,
    AttacherMove,
    AttacherReason,
    ObservedVolumeAttachment,
    PublishVolume,
    UnpublishVolume,
    describe,
    error_entry,
    next_move,
)
from moxwell.embedded.controllermanager.storage.plugin import CSIPlugin
from moxwell.errors import Busy, MoxwellError
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.reconciler import Reconciler

Json = dict[str, Any]


class DetachFailed(Busy):
    """The driver could not detach a volume."""

    reason = AttacherReason.DETACH_FAILED
    retry_seconds = RETRY_SECONDS


class ExternalAttacher(Reconciler[Json, ObservedVolumeAttachment, AttacherMove, Json]):
    """Reconciles VolumeAttachments of the driver."""

    kind = VOLUME_ATTACHMENTS

    def __init__(self, kube: Kube, plugin: CSIPlugin, clock: Clock) -> None:
        self._kube, self._plugin, self._clock = kube, plugin, clock
        self.finalizer = f"external-attacher/{plugin.name.replace('.', '-')}"

    def is_ours(self, attachment: Json) -> bool:
        """Whether the attachment is for a volume of this driver."""
        return bool(attachment["spec"]["attacher"] == self._plugin.name)

    async def see(self, attachment: Json, reader: Reader) -> ObservedVolumeAttachment:
        name, status = labels.attached_volume(attachment), attachment.get("status") or {}
        field = "detachError" if "deletionTimestamp" in attachment["metadata"] else "attachError"
        volume = await reader.find(PERSISTENT_VOLUMES, name) if name else None
        node = await reader.find(CSI_NODES, attachment["spec"]["nodeName"])
        entry = labels.driver_entry(node, self._plugin.name)
        return ObservedVolumeAttachment(
            self._clock.now(),
            self._plugin.name,
            volume,
            str(entry["nodeID"]) if entry else "",
            bool(status.get("attached")),
            str((status.get(field) or {}).get("message") or ""),
        )

    def plan(self, attachment: Json, seen: ObservedVolumeAttachment) -> AttacherMove:
        return next_move(attachment, seen)

    async def act(self, move: AttacherMove) -> Any:
        if isinstance(move, PublishVolume):
            return await self._publish(move)
        if isinstance(move, UnpublishVolume):
            await self._unpublish(move)
        return None

    async def _publish(self, move: PublishVolume) -> Any:
        """An error is recorded, not raised: attach-detach controller and kubelet read it there."""
        written = None
        if move.record_node:
            change = {"metadata": {"annotations": {labels.NODE_ID: move.request.node}}}
            written = await self._kube.merge(self.kind, move.name, change)
        try:
            context = dict(await self._plugin.publish(move.request))
        except MoxwellError as error:
            if str(error) == move.known_error:
                return written
            failed = {"attached": False, "attachError": error_entry(str(error), move.now)}
            return await self._record(move.name, failed)
        answer = {"attached": True, "attachmentMetadata": context, "attachError": None}
        return await self._record(move.name, answer)

    async def _unpublish(self, move: UnpublishVolume) -> None:
        try:
            await self._plugin.unpublish(move.handle, move.node)
        except MoxwellError as error:
            if str(error) != move.known_error:
                failed = {"attached": True, "detachError": error_entry(str(error), move.now)}
                await self._record(move.name, failed)
            raise DetachFailed(str(error)) from error

    async def _record(self, name: str, status: Json) -> Any:
        return await self._kube.merge(self.kind, name, {"status": status}, subresource="status")

    def describe(
        self, attachment: Json, seen: ObservedVolumeAttachment, move: AttacherMove
    ) -> Json | None:
        return describe(seen, move)
