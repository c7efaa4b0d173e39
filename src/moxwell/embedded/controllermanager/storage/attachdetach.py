"""
Which volume should be attached where: the attach-detach controller's part.

A pod on a node wants its volumes there; an attachment that no pod on its node wants goes. A pod
counts until its object is gone, because kubelet unmounts before it lets a pod go. The surprise: a
volume that is still attached elsewhere is waited for, never taken away from there.
"""

from collections.abc import Sequence
from typing import Any

from moxwell.embedded.controllermanager.resources import NODES, PODS
from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.controllermanager.storage.labels import (
    ATTACHMENTS,
    CLAIMS,
    CSI_DRIVERS,
    VOLUMES,
    Json,
)
from moxwell.errors import Conflict
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

LOOK_SECONDS = 3.0
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def wants(pod: Json) -> bool:
    """A pod that sits on a node and has claims."""
    return bool(pod["spec"].get("nodeName") and labels.claims_of(pod)) and not labels.is_over(pod)


class Attaching:
    """From a pod to the attachments it needs."""

    kind = PODS
    finalizer = ""

    def __init__(self, kube: Kube, pods: Any) -> None:
        """``pods`` is the cache of them."""
        self._kube, self._pods = kube, pods
        self._said: set[tuple[str, str]] = set()  # attachments that were told of
        self.watches: Sequence[Watch] = (Watch(ATTACHMENTS, self._on_node),)

    def _on_node(self, attachment: Json) -> list[Key]:
        node = attachment["spec"]["nodeName"]
        return [
            Key(p["metadata"]["namespace"], p["metadata"]["name"])
            for p in self._pods.list()
            if wants(p) and p["spec"]["nodeName"] == node
        ]

    async def reconcile(self, pod: Json) -> Outcome[Json]:
        rows = (await self._kube.list(ATTACHMENTS)).items
        notes, waiting = [], False
        for claim in labels.claims_of(pod):
            volume = await self._volume(claim, pod["metadata"]["namespace"])
            if volume is None:
                waiting = True
                continue
            done, note = await self._attach(volume, pod["spec"]["nodeName"], rows)
            waiting = waiting or not done
            notes += [note] if note and not (done and self._is_told(pod, volume)) else []
        return Outcome(None, again=LOOK_SECONDS if waiting else None, notes=tuple(notes))

    def _is_told(self, pod: Json, volume: Json) -> bool:
        """That it succeeded is said once."""
        key = (pod["metadata"]["uid"], volume["metadata"]["name"])
        told = key in self._said
        self._said.add(key)
        return told

    async def _volume(self, claim: str, space: str) -> Json | None:
        found = await self._kube.find(CLAIMS, claim, space)
        name = (found or {}).get("spec", {}).get("volumeName")
        return await self._kube.find(VOLUMES, name) if name else None

    async def _attach(
        self, volume: Json, node: str, rows: Sequence[Json]
    ) -> tuple[bool, Note | None]:
        csi = volume["spec"].get("csi")
        if csi is None or not await self._must_attach(csi["driver"]):
            return True, None
        name = volume["metadata"]["name"]
        here = [r for r in rows if _of(r) == name]
        mine = next((r for r in here if r["spec"]["nodeName"] == node), None)
        if mine is not None:
            return _told(mine, name)
        if any(r["spec"]["nodeName"] != node for r in here):
            text = (
                f'Multi-Attach error for volume "{name}" Volume is already exclusively attached '
                "to one node and can't be attached to another"
            )
            return False, Note("FailedAttachVolume", text, "Warning")
        try:
            await self._kube.create(_attachment(csi, name, node), ATTACHMENTS)
        except Conflict:
            return False, None
        return False, None

    async def _must_attach(self, driver: str) -> bool:
        found = await self._kube.find(CSI_DRIVERS, driver)
        return bool((found or {"spec": {}})["spec"].get("attachRequired", True))


def _told(attachment: Json, volume: str) -> tuple[bool, Note | None]:
    status = attachment.get("status") or {}
    if status.get("attached"):
        text = f'AttachVolume.Attach succeeded for volume "{volume}"'
        return True, Note("SuccessfulAttachVolume", text)
    error = (status.get("attachError") or {}).get("message")
    if not error:
        return False, None
    text = f'AttachVolume.Attach failed for volume "{volume}" : {error}'
    return False, Note("FailedAttachVolume", text, "Warning")


def _of(attachment: Json) -> str:
    return str(attachment["spec"]["source"].get("persistentVolumeName") or "")


def _attachment(csi: Json, volume: str, node: str) -> Json:
    name = labels.attachment_name(csi["driver"], csi["volumeHandle"], node)
    return {
        "apiVersion": ATTACHMENTS.api_version,
        "kind": ATTACHMENTS.kind,
        "metadata": {"name": name},
        "spec": {
            "attacher": csi["driver"],
            "nodeName": node,
            "source": {"persistentVolumeName": volume},
        },
    }


class Detaching:
    """Attachments that no pod on their node wants."""

    kind = ATTACHMENTS
    finalizer = ""

    def __init__(self, kube: Kube, attachments: Any) -> None:
        """``attachments`` is the cache of them."""
        self._kube, self._attachments = kube, attachments
        self.watches: Sequence[Watch] = (Watch(PODS, self._of_node, _left),)

    def _of_node(self, pod: Json) -> list[Key]:
        node = pod["spec"].get("nodeName")
        return [
            Key("", a["metadata"]["name"])
            for a in self._attachments.list()
            if node and a["spec"]["nodeName"] == node
        ]

    async def reconcile(self, attachment: Json) -> Outcome[Json]:
        name = _of(attachment)
        if name and not await self._is_wanted(name, attachment["spec"]["nodeName"]):
            await self._kube.delete(ATTACHMENTS, attachment["metadata"]["name"])
        return Outcome(None)

    async def _is_wanted(self, volume: str, node: str) -> bool:
        found = await self._kube.find(VOLUMES, volume)
        ref = (found or {}).get("spec", {}).get("claimRef") or {}
        if not ref or await self._is_out(node):
            return False
        pods = (await self._kube.list(PODS, ref["namespace"])).items
        return any(
            wants(p) and p["spec"]["nodeName"] == node and ref["name"] in labels.claims_of(p)
            for p in pods
        )

    async def _is_out(self, node: str) -> bool:
        found = await self._kube.find(NODES, node)
        taints = (found or {"spec": {}})["spec"].get("taints") or ()
        return found is None or any(t["key"] == OUT_OF_SERVICE for t in taints)


def _left(old: Any, new: Any) -> bool:
    """A pod with claims has gone or ended."""
    return old is not None and wants(old) and (new is None or not wants(new))
