"""The external-resizer's part: a claim that asks for more gets a larger disk."""

from collections.abc import Sequence

from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.controllermanager.storage.labels import CLAIMS, CLASSES, VOLUMES, Json
from moxwell.embedded.controllermanager.storage.plugin import Plugin
from moxwell.errors import MoxwellError
from moxwell.kube.client import Kube
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

RETRY_SECONDS = 5.0
PENDING = "FileSystemResizePending"


class Grow:
    """One claim; the file system is the node's part and is waited for."""

    kind = CLAIMS
    finalizer = ""
    watches: Sequence[Watch] = ()

    def __init__(self, kube: Kube, plugin: Plugin) -> None:
        self._kube, self._plugin = kube, plugin

    def concerns(self, claim: Json) -> bool:
        has = labels.size((claim.get("status") or {}).get("capacity") or {})
        return labels.phase(claim) == "Bound" and 0 < has < labels.asked(claim)

    async def reconcile(self, claim: Json) -> Outcome[Json]:
        volume = await self._kube.find(VOLUMES, claim["spec"].get("volumeName") or "")
        csi = (volume or {}).get("spec", {}).get("csi") or {}
        if volume is None or csi.get("driver") != self._plugin.name:
            return Outcome(None)
        if labels.size(volume["spec"]["capacity"]) >= labels.asked(claim):
            return Outcome(None)  # the disk is large enough; the rest is the node's
        klass = await self._kube.find(CLASSES, claim["spec"].get("storageClassName") or "")
        if klass is None or not klass.get("allowVolumeExpansion"):
            text = "the storage class of the claim does not say allowVolumeExpansion"
            return Outcome(None, notes=(Note("VolumeResizeFailed", text, "Warning"),))
        try:
            return await self._grow(claim, volume)
        except MoxwellError as error:
            name = volume["metadata"]["name"]
            text = f'resize volume "{name}" by resizer "{self._plugin.name}" failed: {error}'
            note = Note("VolumeResizeFailed", text, "Warning")
            return Outcome(None, again=RETRY_SECONDS, notes=(note,))

    async def _grow(self, claim: Json, volume: Json) -> Outcome[Json]:
        block, name = labels.is_block(volume), volume["metadata"]["name"]
        handle = volume["spec"]["csi"]["volumeHandle"]
        size, node_acts = await self._plugin.expand(handle, labels.asked(claim), block=block)
        capacity = {"storage": labels.quantity(size)}
        await self._kube.merge(VOLUMES, name, {"spec": {"capacity": capacity}})
        started = Note("Resizing", f"External resizer is resizing volume {name}")
        if not node_acts:
            done = Note("VolumeResizeSuccessful", "Resize volume succeeded")
            return Outcome({"capacity": capacity}, notes=(started, done))
        waits = Note("FileSystemResizeRequired", "Require file system resize of volume on node")
        condition = {
            "type": PENDING,
            "status": "True",
            "message": "Waiting for user to (re-)start a pod to finish file system resize of "
            "volume on node.",
        }
        return Outcome({"conditions": [condition]}, notes=(started, waits))
