"""The ephemeral volume controller: creates the claims of generic ephemeral volumes."""

from collections.abc import Sequence
from typing import Any

from moxwell.embedded.controllermanager.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.controllermanager.storage.ephemeral.plan import (
    Claims,
    EphemeralVolumeReason,
    next_move,
    problems,
)
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.reader import Reader
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note
from moxwell.runtime.watches import Watch

Json = dict[str, Any]


def _owner_pod(claim: Json) -> list[Key]:
    owners = claim["metadata"].get("ownerReferences") or ()
    namespace = claim["metadata"]["namespace"]
    return [Key(namespace, o["name"]) for o in owners if o["kind"] == "Pod"]


class EphemeralVolumeController(WritingReconciler[Json, Claims, Json]):
    """Reconciles pods; sees the claims of their ephemeral volumes by name."""

    kind = PODS
    watches: Sequence[Watch] = (Watch(PERSISTENT_VOLUME_CLAIMS, _owner_pod),)

    async def see(self, pod: Json, reader: Reader) -> Claims:
        namespace = pod["metadata"]["namespace"]
        volumes = labels.ephemeral_volumes(pod)
        names = [labels.ephemeral_claim_name(pod, v) for v in volumes]
        return {n: await reader.find(PERSISTENT_VOLUME_CLAIMS, n, namespace) for n in names}

    def plan(self, pod: Json, seen: Claims) -> WriteMove:
        return next_move(pod, seen)

    def describe(self, pod: Json, seen: Claims, move: WriteMove) -> None:
        return None

    def events(self, pod: Json, seen: Claims, move: WriteMove) -> Sequence[Note]:
        reason = EphemeralVolumeReason.FAILED_BINDING
        return [Note(reason, message, "Warning") for message in problems(pod, seen)]
