"""The external-attacher's part: attachments come true in the driver, and so does their end."""

from collections.abc import Sequence

from moxwell.clock import Clock
from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.controllermanager.storage.labels import ATTACHMENTS, CSI_NODES, VOLUMES, Json
from moxwell.embedded.controllermanager.storage.plugin import Plugin, Use
from moxwell.errors import Missing, MoxwellError
from moxwell.kube.client import Kube
from moxwell.runtime.reconciler import Outcome
from moxwell.runtime.watches import Watch

RETRY_SECONDS = 3.0


class Attach:
    """One attachment; the node's id is noted on it, as the node may be gone at the end."""

    kind = ATTACHMENTS
    watches: Sequence[Watch] = ()

    def __init__(self, kube: Kube, plugin: Plugin, clock: Clock) -> None:
        self._kube, self._plugin, self._clock = kube, plugin, clock
        self.finalizer = f"external-attacher/{plugin.name.replace('.', '-')}"

    def concerns(self, attachment: Json) -> bool:
        return bool(attachment["spec"]["attacher"] == self._plugin.name)

    async def reconcile(self, attachment: Json) -> Outcome[Json]:
        deleting = "deletionTimestamp" in attachment["metadata"]
        if not deleting and (attachment.get("status") or {}).get("attached"):
            return Outcome(None)
        try:
            return await (self._detach(attachment) if deleting else self._attach(attachment))
        except MoxwellError as error:
            now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
            field = "detachError" if deleting else "attachError"
            status = {"attached": deleting, field: {"message": str(error), "time": now}}
            return Outcome(status, again=RETRY_SECONDS)

    async def _attach(self, attachment: Json) -> Outcome[Json]:
        volume = await self._volume(attachment)
        if volume is None:
            raise Missing(f"volume {attachment['spec']['source']} is not there")
        node, left = await self._node_id(attachment), None
        if labels.annotation(attachment, labels.NODE_ID) != node:
            change = {"metadata": {"annotations": {labels.NODE_ID: node}}}
            name = attachment["metadata"]["name"]
            left = await self._kube.merge(ATTACHMENTS, name, change)
        csi = volume["spec"]["csi"]
        use = Use(
            handle=csi["volumeHandle"],
            node=node,
            context=csi.get("volumeAttributes") or {},
            fs_type=csi.get("fsType") or "",
            block=labels.is_block(volume),
            read_only=bool(csi.get("readOnly")),
            modes=tuple(volume["spec"]["accessModes"]),
        )
        context = dict(await self._plugin.publish(use))
        status = {"attached": True, "attachmentMetadata": context, "attachError": None}
        return Outcome(status, left=left)

    async def _detach(self, attachment: Json) -> Outcome[Json]:
        volume = await self._volume(attachment)
        node = labels.annotation(attachment, labels.NODE_ID)
        if volume is not None and node:
            await self._plugin.unpublish(volume["spec"]["csi"]["volumeHandle"], node)
        return Outcome(None, settled=True)

    async def _volume(self, attachment: Json) -> Json | None:
        name = attachment["spec"]["source"].get("persistentVolumeName") or ""
        return await self._kube.find(VOLUMES, name) if name else None

    async def _node_id(self, attachment: Json) -> str:
        node = attachment["spec"]["nodeName"]
        row = labels.driver_row(await self._kube.find(CSI_NODES, node), self._plugin.name)
        if row is None:
            raise Missing(f"node {node} has no CSI driver {self._plugin.name}")
        return str(row["nodeID"])
