"""The external-resizer of CSI: lets the driver expand the volume of a claim."""

from collections.abc import Sequence
from typing import Any

from moxwell.clock import Clock
from moxwell.embedded.controllermanager.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.controllermanager.storage.plugin import CSIPlugin
from moxwell.embedded.controllermanager.storage.resizer.plan import (
    RETRY_SECONDS,
    ExpandVolume,
    ObservedExpansion,
    ResizerMove,
    ResizerReason,
    claim_status,
    next_move,
)
from moxwell.errors import Busy, MoxwellError
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.move import Wait
from moxwell.runtime.reconciler import Note, Reconciler

Json = dict[str, Any]


class VolumeResizeFailed(Busy):
    """The driver could not expand a volume."""

    reason = ResizerReason.FAILED
    retry_seconds = RETRY_SECONDS


class ExternalResizer(Reconciler[Json, ObservedExpansion, ResizerMove, Json]):
    """Reconciles bound PersistentVolumeClaims; volumes come from their cache."""

    kind = PERSISTENT_VOLUME_CLAIMS

    def __init__(self, kube: Kube, plugin: CSIPlugin, clock: Clock, volumes: Cache[Any]) -> None:
        self._kube, self._plugin, self._clock, self._volumes = kube, plugin, clock, volumes

    def is_ours(self, claim: Json) -> bool:
        """Whether the claim is bound."""
        bound = labels.annotation(claim, labels.BIND_COMPLETED)
        return bool(claim["spec"].get("volumeName") and bound)

    async def see(self, claim: Json, reader: Reader) -> ObservedExpansion:
        volume = self._volumes.find(Key("", claim["spec"]["volumeName"]))
        csi = (volume or {}).get("spec", {}).get("csi") or {}
        if volume is None or csi.get("driver") != self._plugin.name:
            return ObservedExpansion()
        if labels.storage_size(volume["spec"]["capacity"]) >= labels.requested_size(claim):
            return ObservedExpansion(volume)
        class_name = claim["spec"].get("storageClassName") or ""
        found = await reader.find(STORAGE_CLASSES, class_name) if class_name else None
        return ObservedExpansion(volume, bool((found or {}).get("allowVolumeExpansion")))

    def plan(self, claim: Json, seen: ObservedExpansion) -> ResizerMove:
        return next_move(claim, seen)

    async def act(self, move: ResizerMove) -> Any:
        if not isinstance(move, ExpandVolume):
            return None
        try:
            size, node_expands = await self._plugin.expand(move.handle, move.size, block=move.block)
        except MoxwellError as error:
            text = f'resize volume "{move.volume}" by resizer "{self._plugin.name}" failed: {error}'
            raise VolumeResizeFailed(text) from error
        capacity = {"spec": {"capacity": {"storage": labels.quantity(size)}}}
        await self._kube.merge(PERSISTENT_VOLUMES, move.volume, capacity)
        status = claim_status(size, self._clock.now(), node_expands=node_expands)
        return await self._record(move.claim, status)

    async def _record(self, claim: Json, status: Json) -> Any:
        meta = claim["metadata"]
        if "conditions" in status:
            others = (claim.get("status") or {}).get("conditions") or ()
            kinds = {c["type"] for c in status["conditions"]}
            kept = [c for c in others if c["type"] not in kinds]
            status = {"conditions": [*kept, *status["conditions"]]}
        return await self._kube.merge(
            self.kind, meta["name"], {"status": status}, meta["namespace"], subresource="status"
        )

    def describe(self, claim: Json, seen: ObservedExpansion, move: ResizerMove) -> None:
        return None

    def events(self, claim: Json, seen: ObservedExpansion, move: ResizerMove) -> Sequence[Note]:
        if isinstance(move, Wait):
            return (Note(move.reason, move.message, "Warning"),)
        if not isinstance(move, ExpandVolume):
            return ()
        text = f"External resizer is resizing volume {move.volume}"
        return (Note(ResizerReason.RESIZING, text), _outcome(block=move.block))


def _outcome(*, block: bool) -> Note:
    if block:
        return Note(ResizerReason.SUCCEEDED, "Resize volume succeeded")
    return Note(ResizerReason.FILE_SYSTEM, "Require file system resize of volume on node")
