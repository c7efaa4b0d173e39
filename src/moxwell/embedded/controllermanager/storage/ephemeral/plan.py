"""
The claims of a pod's generic ephemeral volumes. Pure.

A claim is owned by its pod and is deleted with it. A claim of the same name that the pod does not
own is never used; the pod waits and an event says why.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from moxwell.embedded.controllermanager.resources import PERSISTENT_VOLUME_CLAIMS
from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.controllermanager.workloads import owner_reference
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Create, Writes

Json = dict[str, Any]
Claims = Mapping[str, Json | None]  # existing claims by name
RETRY_SECONDS = 5.0


class EphemeralVolumeReason(StrEnum):
    """Reasons of the events of a pod with ephemeral volumes."""

    FAILED_BINDING = "FailedBinding"


def has_ephemeral_volumes(pod: Json) -> bool:
    """Whether the pod is active and has generic ephemeral volumes."""
    deleting = "deletionTimestamp" in pod["metadata"]
    return bool(labels.ephemeral_volumes(pod)) and not deleting and not labels.is_finished(pod)


def next_move(pod: Json, claims: Claims) -> WriteMove:
    """Create missing claims; wait while one is not the pod's own."""
    missing = [
        v
        for v in labels.ephemeral_volumes(pod)
        if claims.get(labels.ephemeral_claim_name(pod, v)) is None
    ]
    if missing and has_ephemeral_volumes(pod):
        creates = (Create(new_claim(pod, v), PERSISTENT_VOLUME_CLAIMS) for v in missing)
        return Writes(tuple(creates))
    if found := problems(pod, claims):
        return Wait(EphemeralVolumeReason.FAILED_BINDING, found[0], RETRY_SECONDS)
    return Done()


def problems(pod: Json, claims: Claims) -> list[str]:
    """One message for each volume whose claim the pod does not own."""
    messages = []
    for volume in labels.ephemeral_volumes(pod):
        claim = claims.get(labels.ephemeral_claim_name(pod, volume))
        why = labels.ownership_error(pod, claim) if claim is not None else ""
        if why:
            messages.append(f"ephemeral volume {volume['name']}: {why}")
    return messages


def new_claim(pod: Json, volume: Json) -> Json:
    """The claim of an ephemeral volume, from its template."""
    template = volume["ephemeral"]["volumeClaimTemplate"]
    given = template.get("metadata") or {}
    head = {
        **{k: given[k] for k in ("labels", "annotations") if given.get(k)},
        "name": labels.ephemeral_claim_name(pod, volume),
        "namespace": pod["metadata"]["namespace"],
        "ownerReferences": [owner_reference({**pod, "apiVersion": "v1", "kind": "Pod"})],
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": head,
        "spec": template["spec"],
    }
