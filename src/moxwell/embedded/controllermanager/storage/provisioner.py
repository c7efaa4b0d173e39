"""The external-provisioner's part: disks for claims, and their end."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from moxwell.embedded.controllermanager.resources import NODES
from moxwell.embedded.controllermanager.storage import binding, provision_request
from moxwell.embedded.controllermanager.storage import labels as storage_labels
from moxwell.embedded.controllermanager.storage.labels import (
    ATTACHMENTS,
    CLAIMS,
    CLASSES,
    CONTENTS,
    CSI_NODES,
    SNAPSHOTS,
    VOLUMES,
    Json,
)
from moxwell.embedded.controllermanager.storage.plugin import Exhausted, Order, Plugin
from moxwell.errors import Conflict, MoxwellError
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

RETRY_SECONDS = 5.0


class NotYet(Conflict):
    """What a claim is to be made from is not there yet."""

    reason = "SourceNotReady"


class Provision:
    """From a claim that asks for us to a PersistentVolume."""

    kind = CLAIMS
    finalizer = ""
    watches: Sequence[Watch] = ()

    def __init__(self, kube: Kube, plugin: Plugin) -> None:
        self._kube, self._plugin = kube, plugin

    def concerns(self, claim: Json) -> bool:
        ours = storage_labels.annotation(claim, storage_labels.PROVISIONER) == self._plugin.name
        return ours and not claim["spec"].get("volumeName")

    async def reconcile(self, claim: Json) -> Outcome[Json]:
        klass = await self._kube.find(CLASSES, claim["spec"].get("storageClassName") or "")
        selected = storage_labels.annotation(claim, storage_labels.SELECTED)
        if klass is None or (binding.waits(klass) and not selected):
            return Outcome(None)
        if await self._kube.find(VOLUMES, provision_request.volume_name(claim)) is not None:
            return Outcome(None)
        try:
            return await self._make(claim, klass, selected)
        except MoxwellError as error:
            return await self._refused(claim, klass, selected, error)

    async def _make(self, claim: Json, klass: Json, selected: str) -> Outcome[Json]:
        segments = await self._segments(klass, selected)
        wanted = await self._with_source(claim, provision_request.order(claim, klass, segments))
        stored = await self._plugin.create(wanted)
        body = provision_request.volume(claim, klass, wanted, stored, self._plugin.name)
        try:
            await self._kube.create(body, VOLUMES)
        except Conflict:
            return Outcome(None)  # a pass before this one made it
        said = f"Successfully provisioned volume {wanted.name}"
        return Outcome(None, notes=(Note("ProvisioningSucceeded", said),))

    async def _refused(
        self, claim: Json, klass: Json, selected: str, error: MoxwellError
    ) -> Outcome[Json]:
        """Tell it, and let a claim that found no room there look for another node."""
        name = klass["metadata"]["name"]
        text = f'failed to provision volume with StorageClass "{name}": {error}'
        note, left = Note("ProvisioningFailed", text, "Warning"), None
        if isinstance(error, Exhausted) and selected:
            meta = claim["metadata"]
            change = {"metadata": {"annotations": {storage_labels.SELECTED: None}}}
            left = await self._kube.merge(CLAIMS, meta["name"], change, meta["namespace"])
        return Outcome(None, again=RETRY_SECONDS, notes=(note,), left=left)

    async def _segments(self, klass: Json, selected: str) -> list[Mapping[str, str]]:
        """The chosen node's segment, or those of all nodes that have the driver."""
        found: list[Mapping[str, str]] = []
        for node in (await self._kube.list(NODES)).items:
            name = node["metadata"]["name"]
            if selected and name != selected:
                continue
            segment = await self.segment(node)
            if segment and segment not in found and provision_request.is_allowed(klass, segment):
                found.append(segment)
        if not found:
            where = f"node {selected}" if selected else "no node"
            raise NotYet(f"{where} has the driver {self._plugin.name} yet")
        return found

    async def segment(self, node: Json) -> Mapping[str, str]:
        return await segment(self._kube, node, self._plugin.name)

    async def _with_source(self, claim: Json, wanted: Order) -> Order:
        source = claim["spec"].get("dataSource") or claim["spec"].get("dataSourceRef")
        if not source:
            return wanted
        space, name = claim["metadata"]["namespace"], source["name"]
        if source["kind"] == "PersistentVolumeClaim":
            return replace(wanted, from_volume=await self._claim_handle(name, space))
        return replace(wanted, from_snapshot=await self._snapshot_handle(name, space))

    async def _claim_handle(self, name: str, space: str) -> str:
        claim = await self._kube.find(CLAIMS, name, space)
        volume = claim and await self._kube.find(VOLUMES, claim["spec"].get("volumeName") or "")
        if not volume or "csi" not in volume["spec"]:
            raise NotYet(f"claim {name}, which is to be cloned, is not bound yet")
        return str(volume["spec"]["csi"]["volumeHandle"])

    async def _snapshot_handle(self, name: str, space: str) -> str:
        snapshot = await self._kube.find(SNAPSHOTS, name, space)
        status = (snapshot or {}).get("status") or {}
        bound = status.get("boundVolumeSnapshotContentName")
        if not status.get("readyToUse") or not bound:
            raise NotYet(f"snapshot {name} is not ready to use")
        content = await self._kube.get(CONTENTS, bound)
        return str(content["status"]["snapshotHandle"])


class Reclaim:
    """The disk of a volume that nobody claims any more."""

    kind = VOLUMES
    finalizer = storage_labels.KEPT_BY_PROVISIONER
    watches: Sequence[Watch] = (
        Watch(ATTACHMENTS, lambda a: [Key("", a["spec"]["source"].get("persistentVolumeName"))]),
    )

    def __init__(self, kube: Kube, plugin: Plugin) -> None:
        self._kube, self._plugin = kube, plugin

    def concerns(self, volume: Json) -> bool:
        return storage_labels.annotation(volume, storage_labels.PROVISIONED_BY) == self._plugin.name

    async def reconcile(self, volume: Json) -> Outcome[Json]:
        deleting = "deletionTimestamp" in volume["metadata"]
        unclaimed = deleting and storage_labels.phase(volume) == "Available"
        free = unclaimed or storage_labels.phase(volume) in ("Released", "Failed")
        if volume["spec"].get("persistentVolumeReclaimPolicy") != "Delete":
            return Outcome(None, settled=free)
        if not free:
            return Outcome(None)
        name = volume["metadata"]["name"]
        if await self._is_attached(name):
            return Outcome(None, again=RETRY_SECONDS)
        try:
            await self._plugin.delete(volume["spec"]["csi"]["volumeHandle"])
        except MoxwellError as error:
            note = Note("VolumeFailedDelete", str(error), "Warning")
            return Outcome(None, again=RETRY_SECONDS, notes=(note,))
        if not deleting:
            await self._kube.delete(VOLUMES, name)
        return Outcome(None, settled=True)

    async def _is_attached(self, name: str) -> bool:
        rows = (await self._kube.list(ATTACHMENTS)).items
        return any(r["spec"]["source"].get("persistentVolumeName") == name for r in rows)


async def segment(kube: Kube, node: Json, driver: str) -> Mapping[str, str]:
    """Where a node is, by the keys that its driver registered; empty: it has not."""
    row = storage_labels.driver_row(await kube.find(CSI_NODES, node["metadata"]["name"]), driver)
    labels = node["metadata"].get("labels") or {}
    return {key: labels[key] for key in (row or {}).get("topologyKeys") or () if key in labels}
