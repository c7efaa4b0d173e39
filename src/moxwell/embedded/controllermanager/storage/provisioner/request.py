"""
The CreateVolume request of a claim, and the PersistentVolume of the created volume. Pure.

Class parameters with the prefix ``csi.storage.k8s.io/`` are for Kubernetes and are not passed to
the driver, except for the names of the claim and the volume, which it uses in messages.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from moxwell.embedded.controllermanager.storage import labels as storage_labels
from moxwell.embedded.controllermanager.storage.plugin import ProvisionedVolume, VolumeRequest

Json = dict[str, Any]
_FSTYPE = f"{storage_labels.RESERVED_PREFIX}fstype"
_PROVISIONER_IDENTITY = "storage.kubernetes.io/csiProvisionerIdentity"
_SECRETS = {
    "node-stage": "nodeStageSecretRef",
    "node-publish": "nodePublishSecretRef",
    "node-expand": "nodeExpandSecretRef",
    "controller-publish": "controllerPublishSecretRef",
    "controller-expand": "controllerExpandSecretRef",
}


def volume_name(claim: Json) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def volume_request(
    claim: Json, storage_class: Json, segments: Sequence[Mapping[str, str]]
) -> VolumeRequest:
    """The volume that the driver must create for a claim."""
    given, meta = storage_class.get("parameters") or {}, claim["metadata"]
    plain = {
        k: str(v) for k, v in given.items() if not k.startswith(storage_labels.RESERVED_PREFIX)
    }
    names = {
        f"{storage_labels.RESERVED_PREFIX}pvc/name": meta["name"],
        f"{storage_labels.RESERVED_PREFIX}pvc/namespace": meta["namespace"],
        f"{storage_labels.RESERVED_PREFIX}pv/name": volume_name(claim),
    }
    return VolumeRequest(
        name=volume_name(claim),
        size=storage_labels.requested_size(claim),
        parameters=plain | names,
        segments=tuple(segments),
        fs_type="" if storage_labels.is_block(claim) else str(given.get(_FSTYPE) or "ext4"),
        block=storage_labels.is_block(claim),
        modes=tuple(claim["spec"]["accessModes"]),
    )


def persistent_volume(
    claim: Json,
    storage_class: Json,
    request: VolumeRequest,
    created: ProvisionedVolume,
    driver: str,
) -> Json:
    """The PersistentVolume of a volume that the driver has created."""
    csi: Json = {
        "driver": driver,
        "volumeHandle": created.handle,
        "volumeAttributes": {**created.context, _PROVISIONER_IDENTITY: driver},
    }
    if request.fs_type:
        csi["fsType"] = request.fs_type
    csi |= _secrets(storage_class, claim)
    spec: Json = {
        "accessModes": list(request.modes),
        "capacity": {"storage": storage_labels.quantity(created.size)},
        "claimRef": _claim_ref(claim["metadata"]),
        "csi": csi,
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
        "storageClassName": storage_class["metadata"]["name"],
        "volumeMode": "Block" if request.block else "Filesystem",
    }
    if storage_class.get("mountOptions"):
        spec["mountOptions"] = storage_class["mountOptions"]
    if created.segments:
        spec["nodeAffinity"] = affinity(created.segments)
    head = {
        "name": request.name,
        "annotations": {storage_labels.PROVISIONED_BY: driver},
        "finalizers": [storage_labels.PROVISIONER_FINALIZER],
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": head, "spec": spec}


def _claim_ref(meta: Json) -> Json:
    names = ("namespace", "name", "uid", "resourceVersion")
    head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return head | {name: meta[name] for name in names}


def affinity(segments: Sequence[Mapping[str, str]]) -> Json:
    """The node affinity of a volume that only these topology segments can access."""
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


def _secrets(storage_class: Json, claim: Json) -> Json:
    """The secret references of the class, with the variables of their names expanded."""
    given, found = storage_class.get("parameters") or {}, {}
    variables = {
        "${pvc.name}": claim["metadata"]["name"],
        "${pvc.namespace}": claim["metadata"]["namespace"],
        "${pv.name}": volume_name(claim),
    }
    for role, field in _SECRETS.items():
        name = given.get(f"{storage_labels.RESERVED_PREFIX}{role}-secret-name")
        namespace = given.get(f"{storage_labels.RESERVED_PREFIX}{role}-secret-namespace")
        if name and namespace:
            found[field] = {
                "name": _expand(name, variables),
                "namespace": _expand(namespace, variables),
            }
    return found


def _expand(text: str, variables: Mapping[str, str]) -> str:
    for key, value in variables.items():
        text = text.replace(key, value)
    return text


def is_allowed(storage_class: Json, labels: Mapping[str, str]) -> bool:
    """Whether the allowedTopologies of the class include a node with these labels."""
    terms = storage_class.get("allowedTopologies") or ()
    return not terms or any(
        all(
            labels.get(e["key"]) in e["values"]
            for e in term.get("matchLabelExpressions") or ()
        )
        for term in terms
    )  # fmt: skip
