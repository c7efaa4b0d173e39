"""Annotations, finalizers, derived names and field readers of Kubernetes' volume objects."""

import hashlib
from collections.abc import Mapping
from typing import Any

from moxwell.api.quantity import Quantity

Json = dict[str, Any]
PROVISIONER = "volume.kubernetes.io/storage-provisioner"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
NODE_ID = "csi.alpha.kubernetes.io/node-id"
PROVISIONER_FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
RESERVED_PREFIX = "csi.storage.k8s.io/"  # of class parameters that are not the driver's


def annotation(obj: Mapping[str, Any], key: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(key) or "")


def requested_size(claim: Mapping[str, Any]) -> int:
    """The bytes that a claim requests."""
    return storage_size((claim["spec"].get("resources") or {}).get("requests") or {})


def storage_size(resources: Mapping[str, Any]) -> int:
    """The bytes of ``{"storage": "10Gi"}``; 0 without a storage entry."""
    return Quantity.parse(str(resources.get("storage") or "0")).value


def quantity(size_bytes: int) -> str:
    """Bytes as a quantity in the largest unit that divides them."""
    for power, unit in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if size_bytes % (1 << power) == 0:
            return f"{size_bytes >> power}{unit}"
    return str(size_bytes)


def attachment_name(driver: str, handle: str, node: str) -> str:
    """The name of a VolumeAttachment; the kubelet derives the same one."""
    return "csi-" + hashlib.sha256(f"{handle}{driver}{node}".encode()).hexdigest()


def claims_of(pod: Mapping[str, Any]) -> list[str]:
    """The names of a pod's claims, ephemeral ones included, in the order of its volumes."""
    names = []
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            names.append(str(volume["persistentVolumeClaim"]["claimName"]))
        elif "ephemeral" in volume:
            names.append(ephemeral_claim_name(pod, volume))
    return names


def ephemeral_volumes(pod: Mapping[str, Any]) -> list[Json]:
    """The generic ephemeral volumes of a pod."""
    return [v for v in pod["spec"].get("volumes") or () if "ephemeral" in v]


def ephemeral_claim_name(pod: Mapping[str, Any], volume: Mapping[str, Any]) -> str:
    """The name of the claim of an ephemeral volume; all of Kubernetes derives it in this way."""
    return f"{pod['metadata']['name']}-{volume['name']}"


def ownership_error(pod: Mapping[str, Any], claim: Mapping[str, Any]) -> str:
    """Why an ephemeral volume may not use a claim that the pod does not own; else empty."""
    meta, own = claim["metadata"], pod["metadata"]
    if meta["name"] not in {ephemeral_claim_name(pod, v) for v in ephemeral_volumes(pod)}:
        return ""
    owners = meta.get("ownerReferences") or ()
    if any(o.get("controller") and o["uid"] == own["uid"] for o in owners):
        return ""
    namespace = meta["namespace"]
    return (
        f"PVC {namespace}/{meta['name']} was not created for pod {namespace}/{own['name']} "
        "(pod is not owner)"
    )


def is_finished(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def driver_entry(csi_node: Mapping[str, Any] | None, name: str) -> Json | None:
    """The entry of a driver in a CSINode."""
    entries = ((csi_node or {}).get("spec") or {}).get("drivers") or ()
    return next((entry for entry in entries if entry["name"] == name), None)


def attached_volume(attachment: Mapping[str, Any]) -> str:
    """The name of the PersistentVolume of a VolumeAttachment."""
    return str(attachment["spec"]["source"].get("persistentVolumeName") or "")


def phase(obj: Mapping[str, Any]) -> str:
    return str((obj.get("status") or {}).get("phase") or "")


def is_block(obj: Mapping[str, Any]) -> bool:
    return bool(obj["spec"].get("volumeMode") == "Block")
