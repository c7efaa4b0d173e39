"""Words that Kubernetes' storage controllers write and read: annotations, finalizers, kinds."""

import hashlib
from collections.abc import Mapping
from typing import Any

from moxwell.api.kinds import Resource
from moxwell.api.quantity import Quantity

Json = dict[str, Any]
GROUP, SNAPSHOT_GROUP = "storage.k8s.io", "snapshot.storage.k8s.io"
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
CLASSES = Resource(GROUP, "v1", "storageclasses", "StorageClass", namespaced=False)
ATTACHMENTS = Resource(GROUP, "v1", "volumeattachments", "VolumeAttachment", namespaced=False)
CSI_NODES = Resource(GROUP, "v1", "csinodes", "CSINode", namespaced=False)
CSI_DRIVERS = Resource(GROUP, "v1", "csidrivers", "CSIDriver", namespaced=False)
CAPACITIES = Resource(GROUP, "v1", "csistoragecapacities", "CSIStorageCapacity")
SNAPSHOTS = Resource(SNAPSHOT_GROUP, "v1", "volumesnapshots", "VolumeSnapshot")
CONTENTS = Resource(
    SNAPSHOT_GROUP, "v1", "volumesnapshotcontents", "VolumeSnapshotContent", namespaced=False
)
SNAPSHOT_CLASSES = Resource(
    SNAPSHOT_GROUP, "v1", "volumesnapshotclasses", "VolumeSnapshotClass", namespaced=False
)

PROVISIONER = "volume.kubernetes.io/storage-provisioner"
SELECTED = "volume.kubernetes.io/selected-node"
COMPLETED = "pv.kubernetes.io/bind-completed"
BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
NODE_ID = "csi.alpha.kubernetes.io/node-id"
KEPT_BY_PROVISIONER = "external-provisioner.volume.kubernetes.io/finalizer"
OWN_PREFIX = "csi.storage.k8s.io/"


def annotation(obj: Mapping[str, Any], key: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(key) or "")


def asked(claim: Mapping[str, Any]) -> int:
    """The bytes that a claim asks for."""
    return size((claim["spec"].get("resources") or {}).get("requests") or {})


def size(of: Mapping[str, Any]) -> int:
    """The bytes of ``{"storage": "10Gi"}``; 0 if it says nothing."""
    return Quantity.parse(str(of.get("storage") or "0")).value


def quantity(size_bytes: int) -> str:
    """Bytes as people write them."""
    for power, unit in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if size_bytes % (1 << power) == 0:
            return f"{size_bytes >> power}{unit}"
    return str(size_bytes)


def attachment_name(driver: str, handle: str, node: str) -> str:
    """The name that attach-detach controller and kubelet both derive."""
    return "csi-" + hashlib.sha256(f"{handle}{driver}{node}".encode()).hexdigest()


def claims_of(pod: Mapping[str, Any]) -> list[str]:
    """The claims that a pod names or brings with it, in order."""
    found = []
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            found.append(str(volume["persistentVolumeClaim"]["claimName"]))
        elif "ephemeral" in volume:
            found.append(brought_name(pod, volume))
    return found


def brought(pod: Mapping[str, Any]) -> list[Json]:
    """The volumes whose claims a pod brings with it."""
    return [v for v in pod["spec"].get("volumes") or () if "ephemeral" in v]


def brought_name(pod: Mapping[str, Any], volume: Mapping[str, Any]) -> str:
    """The name of such a claim, which the whole of Kubernetes derives in this way."""
    return f"{pod['metadata']['name']}-{volume['name']}"


def misowned(pod: Mapping[str, Any], claim: Mapping[str, Any]) -> str:
    """Why a claim that a pod would bring is not the pod's own; empty: it is, or none is brought."""
    meta, own = claim["metadata"], pod["metadata"]
    if meta["name"] not in {brought_name(pod, v) for v in brought(pod)}:
        return ""
    owners = meta.get("ownerReferences") or ()
    if any(o.get("controller") and o["uid"] == own["uid"] for o in owners):
        return ""
    space = meta["namespace"]
    return (
        f"PVC {space}/{meta['name']} was not created for pod {space}/{own['name']} "
        "(pod is not owner)"
    )


def is_over(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def driver_row(csi_node: Mapping[str, Any] | None, name: str) -> Json | None:
    """What a node says about a driver."""
    rows = ((csi_node or {}).get("spec") or {}).get("drivers") or ()
    return next((row for row in rows if row["name"] == name), None)


def phase(obj: Mapping[str, Any]) -> str:
    return str((obj.get("status") or {}).get("phase") or "")


def is_block(obj: Mapping[str, Any]) -> bool:
    return bool(obj["spec"].get("volumeMode") == "Block")
