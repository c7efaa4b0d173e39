"""The attach-detach controller: creates and deletes VolumeAttachments as pods need them."""

from collections.abc import Sequence
from typing import Any

from moxwell.embedded.controllermanager.pods_by_node import pods_on_node
from moxwell.embedded.controllermanager.resources import (
    CSI_DRIVERS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    VOLUME_ATTACHMENTS,
)
from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.controllermanager.storage.attachdetach.plan import (
    AnnounceAttached,
    AttachMove,
    ObservedAttachment,
    ObservedPodVolumes,
    events,
    is_in_service,
    needs_volumes,
    next_detach,
    next_move,
)
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.caches import Caches
from moxwell.runtime.index import by_field
from moxwell.runtime.key import Key
from moxwell.runtime.objects import key_of, meta_of
from moxwell.runtime.reconciler import Note, Reconciler
from moxwell.runtime.watches import Watch
from moxwell.runtime.writes import Writes

Json = dict[str, Any]
BY_NODE = "embedded.attachment_node"
MAX_ANNOUNCED = 4096  # pods; beyond it those that are gone are forgotten


class AttachController(Reconciler[Json, ObservedPodVolumes, AttachMove, Json]):
    """
    The attach half: reconciles pods with claims.

    Claims and volumes come from caches. Attachments are read live: a missing one would attach a
    volume to two nodes.
    """

    kind = PODS

    def __init__(self, kube: Kube, caches: Caches) -> None:
        self._kube, self._pods = kube, caches.of(PODS)
        self._claims = caches.of(PERSISTENT_VOLUME_CLAIMS)
        self._volumes = caches.of(PERSISTENT_VOLUMES)
        self._announced: dict[str, set[str]] = {}  # pod UID -> volumes; in memory
        self.watches: Sequence[Watch] = (Watch(VOLUME_ATTACHMENTS, self._of_attachment),)

    def _of_attachment(self, attachment: Json) -> list[Key]:
        pods = pods_on_node(self._pods, attachment["spec"]["nodeName"])
        return [key_of(p) for p in pods if needs_volumes(p)]

    async def see(self, pod: Json, reader: Reader) -> ObservedPodVolumes:
        namespace, names = pod["metadata"]["namespace"], labels.claims_of(pod)
        found = [self._volume(Key(namespace, name)) for name in names]
        bound = [v for v in found if v is not None]
        volumes = [v for v in bound if await _must_attach(v, reader)]
        attachments = (await reader.list(VOLUME_ATTACHMENTS)).items if volumes else ()
        announced = self._announced.get(pod["metadata"]["uid"], set())
        return ObservedPodVolumes(
            tuple(volumes), tuple(attachments), len(found) - len(bound), frozenset(announced)
        )

    def _volume(self, claim: Key) -> Json | None:
        found = self._claims.find(claim)
        name = (found or {}).get("spec", {}).get("volumeName")
        volume: Json | None = self._volumes.find(Key("", name)) if name else None
        return volume

    def plan(self, pod: Json, seen: ObservedPodVolumes) -> AttachMove:
        return next_move(pod, seen)

    async def act(self, move: AttachMove) -> Any:
        if isinstance(move, Writes):
            await move.perform(self._kube)
        elif isinstance(move, AnnounceAttached):
            self._announced.setdefault(move.pod_uid, set()).update(move.volumes)
            if len(self._announced) > MAX_ANNOUNCED:
                present = {meta_of(p).uid for p in self._pods.list()}
                self._announced = {u: v for u, v in self._announced.items() if u in present}

    def describe(self, pod: Json, seen: ObservedPodVolumes, move: AttachMove) -> None:
        return None

    def events(self, pod: Json, seen: ObservedPodVolumes, move: AttachMove) -> Sequence[Note]:
        return events(pod, seen, move)


async def _must_attach(volume: Json, reader: Reader) -> bool:
    csi = volume["spec"].get("csi")
    if csi is None:
        return False
    driver = await reader.find(CSI_DRIVERS, csi["driver"])
    return bool((driver or {"spec": {}})["spec"].get("attachRequired", True))


class DetachController(WritingReconciler[Json, ObservedAttachment, Json]):
    """The detach half: reconciles VolumeAttachments; all reads are live."""

    kind = VOLUME_ATTACHMENTS

    def __init__(self, kube: Kube, caches: Caches) -> None:
        super().__init__(kube)
        self._attachments = caches.of(VOLUME_ATTACHMENTS, {BY_NODE: by_field("spec.nodeName")})
        self.watches: Sequence[Watch] = (Watch(PODS, self._of_pod, _no_longer_needed),)

    def _of_pod(self, pod: Json) -> list[Key]:
        node = pod["spec"].get("nodeName") or ""
        return [key_of(a) for a in self._attachments.by(BY_NODE, node)]

    async def see(self, attachment: Json, reader: Reader) -> ObservedAttachment:
        name = labels.attached_volume(attachment)
        volume = await reader.find(PERSISTENT_VOLUMES, name) if name else None
        ref = (volume or {}).get("spec", {}).get("claimRef") or {}
        if not ref:
            return ObservedAttachment()
        node = await reader.find(NODES, attachment["spec"]["nodeName"])
        pods = (await reader.list(PODS, ref["namespace"])).items
        return ObservedAttachment(ref["name"], is_in_service(node), tuple(pods))

    def plan(self, attachment: Json, seen: ObservedAttachment) -> WriteMove:
        return next_detach(attachment, seen)

    def describe(self, attachment: Json, seen: ObservedAttachment, move: WriteMove) -> None:
        return None


def _no_longer_needed(old: Any, new: Any) -> bool:
    """Whether a pod that needed volumes has finished or is gone."""
    return old is not None and needs_volumes(old) and (new is None or not needs_volumes(new))
