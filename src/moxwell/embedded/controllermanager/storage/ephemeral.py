"""
Claims that a pod brings with it: the ephemeral volume controller's part.

In: a pod with ``ephemeral`` volumes. Out: a claim for each, owned by the pod, so that it goes when
the pod goes. The surprise: a claim of that name that is not the pod's own is never used; the pod
waits, and is told.
"""

from collections.abc import Sequence

from moxwell.embedded.controllermanager.resources import PODS
from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.controllermanager.storage.labels import CLAIMS, Json
from moxwell.errors import Conflict
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

RETRY_SECONDS = 5.0


def _owner(claim: Json) -> list[Key]:
    owners = claim["metadata"].get("ownerReferences") or ()
    space = claim["metadata"]["namespace"]
    return [Key(space, o["name"]) for o in owners if o["kind"] == "Pod"]


def concerns(pod: Json) -> bool:
    """A pod that lives and brings claims."""
    leaving = "deletionTimestamp" in pod["metadata"]
    return bool(labels.brought(pod)) and not leaving and not labels.is_over(pod)


class Ephemeral:
    """From a pod to the claims it brings."""

    kind = PODS
    finalizer = ""
    watches: Sequence[Watch] = (Watch(CLAIMS, _owner),)

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def reconcile(self, pod: Json) -> Outcome[Json]:
        if not concerns(pod):
            return Outcome(None)
        whys = [(v["name"], await self._why_not(pod, v)) for v in labels.brought(pod)]
        notes = tuple(
            Note("FailedBinding", f"ephemeral volume {name}: {why}", "Warning")
            for name, why in whys
            if why
        )
        return Outcome(None, again=RETRY_SECONDS if notes else None, notes=notes)

    async def _why_not(self, pod: Json, volume: Json) -> str:
        """Make the claim unless it is there; why the one that is there is of no use."""
        space = pod["metadata"]["namespace"]
        found = await self._kube.find(CLAIMS, labels.brought_name(pod, volume), space)
        if found is not None:
            return labels.misowned(pod, found)
        try:
            await self._kube.create(claim(pod, volume), CLAIMS)
        except Conflict as error:
            return str(error)
        return ""


def claim(pod: Json, volume: Json) -> Json:
    """The claim of one volume, as its template says."""
    meta, template = pod["metadata"], volume["ephemeral"]["volumeClaimTemplate"]
    given = template.get("metadata") or {}
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    head = {
        **{k: given[k] for k in ("labels", "annotations") if given.get(k)},
        "name": labels.brought_name(pod, volume),
        "namespace": meta["namespace"],
        "ownerReferences": [owner],
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": head,
        "spec": template["spec"],
    }
