"""
From a claim to an order, and from what was stored to a PersistentVolume: the pure part.

Parameters with the ``csi.storage.k8s.io/`` prefix are for Kubernetes and are not passed on, apart
from the names of claim and volume, which let a driver speak to the person who waits.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from moxwell.embedded.controllermanager.storage import labels as storage_labels
from moxwell.embedded.controllermanager.storage.plugin import Order, Stored

Json = dict[str, Any]
_FSTYPE = f"{storage_labels.OWN_PREFIX}fstype"
_MADE_BY = "storage.kubernetes.io/csiProvisionerIdentity"
_SECRETS = {
    "node-stage": "nodeStageSecretRef",
    "node-publish": "nodePublishSecretRef",
    "node-expand": "nodeExpandSecretRef",
    "controller-publish": "controllerPublishSecretRef",
    "controller-expand": "controllerExpandSecretRef",
}


def volume_name(claim: Json) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def order(claim: Json, klass: Json, segments: Sequence[Mapping[str, str]]) -> Order:
    """What to ask the driver for."""
    given, meta = klass.get("parameters") or {}, claim["metadata"]
    plain = {k: str(v) for k, v in given.items() if not k.startswith(storage_labels.OWN_PREFIX)}
    told = {
        f"{storage_labels.OWN_PREFIX}pvc/name": meta["name"],
        f"{storage_labels.OWN_PREFIX}pvc/namespace": meta["namespace"],
        f"{storage_labels.OWN_PREFIX}pv/name": volume_name(claim),
    }
    return Order(
        name=volume_name(claim),
        size=storage_labels.asked(claim),
        parameters=plain | told,
        segments=tuple(segments),
        fs_type="" if storage_labels.is_block(claim) else str(given.get(_FSTYPE) or "ext4"),
        block=storage_labels.is_block(claim),
        modes=tuple(claim["spec"]["accessModes"]),
    )


def volume(claim: Json, klass: Json, made: Order, stored: Stored, driver: str) -> Json:
    """The PersistentVolume of a disk."""
    meta = claim["metadata"]
    csi: Json = {
        "driver": driver,
        "volumeHandle": stored.handle,
        "volumeAttributes": {**stored.context, _MADE_BY: driver},
    }
    if made.fs_type:
        csi["fsType"] = made.fs_type
    csi |= _secrets(klass, claim)
    spec: Json = {
        "accessModes": list(made.modes),
        "capacity": {"storage": storage_labels.quantity(stored.size)},
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        },
        "csi": csi,
        "persistentVolumeReclaimPolicy": klass.get("reclaimPolicy", "Delete"),
        "storageClassName": klass["metadata"]["name"],
        "volumeMode": "Block" if made.block else "Filesystem",
    }
    if klass.get("mountOptions"):
        spec["mountOptions"] = klass["mountOptions"]
    if stored.segments:
        spec["nodeAffinity"] = affinity(stored.segments)
    head = {
        "name": made.name,
        "annotations": {storage_labels.PROVISIONED_BY: driver},
        "finalizers": [storage_labels.KEPT_BY_PROVISIONER],
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": head, "spec": spec}


def affinity(segments: Sequence[Mapping[str, str]]) -> Json:
    """From where a volume can be reached, as a node affinity."""
    terms = [
        {
            "matchExpressions": [
                {"key": key, "operator": "In", "values": [value]}
                for key, value in sorted(segment.items())
            ]
        }
        for segment in segments
    ]
    return {"required": {"nodeSelectorTerms": terms}}


def _secrets(klass: Json, claim: Json) -> Json:
    """References to secrets, with the few variables that their names may have."""
    given, found = klass.get("parameters") or {}, {}
    words = {
        "${pvc.name}": claim["metadata"]["name"],
        "${pvc.namespace}": claim["metadata"]["namespace"],
        "${pv.name}": volume_name(claim),
    }
    for word, field in _SECRETS.items():
        name = given.get(f"{storage_labels.OWN_PREFIX}{word}-secret-name")
        space = given.get(f"{storage_labels.OWN_PREFIX}{word}-secret-namespace")
        if name and space:
            found[field] = {"name": _filled(name, words), "namespace": _filled(space, words)}
    return found


def _filled(text: str, words: Mapping[str, str]) -> str:
    for key, value in words.items():
        text = text.replace(key, value)
    return text


def is_allowed(klass: Json, labels: Mapping[str, str]) -> bool:
    """Do the class's allowedTopologies admit a node with these labels?"""
    terms = klass.get("allowedTopologies") or ()
    return not terms or any(
        all(
            labels.get(e["key"]) in e["values"]
            for e in term.get("matchLabelExpressions") or ()
        )
        for term in terms
    )  # fmt: skip
