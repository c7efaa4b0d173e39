"""
What the volumes of a pod require of its node: topology, attachments, and whether they can be used.

A pod may run where all its volumes are: each PersistentVolume (or, before it is bound, its storage
class) allows alternatives of node labels, and the alternatives of several volumes are combined.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from moxwell.scheduling.packing.pod_parsing import node_term
from moxwell.scheduling.packing.pods import NodeTerm
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.scheduling.well_known_labels import HOSTNAME

Json = Mapping[str, Any]
_BOUND = "pv.kubernetes.io/bind-completed"


_AWS_DRIVER = "ebs.csi.aws.com"
CSI_DRIVERS = {  # the plugins that Kubernetes contained -> the drivers that replaced them
    "kubernetes.io/aws-ebs": _AWS_DRIVER,
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
}


@dataclass(frozen=True, slots=True)
class StorageObjects:
    """Claims by ``namespace/name``; volumes and storage classes by name."""

    claims: Mapping[str, Json] = field(default_factory=dict)
    volumes: Mapping[str, Json] = field(default_factory=dict)
    classes: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """
    Alternatives of node labels (none: any node), attachments ``(driver, claim)``, and why the pod
    cannot be scheduled before its volumes are mended.
    """

    topologies: tuple[NodeTerm, ...] = ()
    attachments: tuple[tuple[str, str], ...] = ()
    refusal: str = ""


def pod_volumes(pod: Json, storage: StorageObjects) -> PodVolumes:
    """The demands of a pod's volumes."""
    topologies: tuple[NodeTerm, ...] = ()
    attachments: set[tuple[str, str]] = set()
    for key in claim_keys(pod):
        claim = storage.claims.get(key)
        if claim is None:
            return PodVolumes(refusal=f'persistentvolumeclaim "{key}" not found')
        if refusal := _refusal(key, claim, storage):
            return PodVolumes(refusal=refusal)
        topologies = _combined(topologies, _alternatives(claim, storage))
        if driver := _driver(claim, storage):
            attachments.add((driver, key))
    return PodVolumes(topologies, tuple(sorted(attachments)))


def claim_keys(pod: Json) -> Iterator[str]:
    """The claims of a pod; an ephemeral volume has one named after pod and volume."""
    meta: Json = pod["metadata"]
    namespace = meta.get("namespace") or "default"
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if source := volume.get("persistentVolumeClaim"):
            yield f"{namespace}/{source['claimName']}"
        elif volume.get("ephemeral") is not None:
            yield f"{namespace}/{meta['name']}-{volume['name']}"


def _refusal(key: str, claim: Json, storage: StorageObjects) -> str:
    """Why a claim cannot be used yet; empty if it can."""
    spec, meta = claim.get("spec") or {}, claim["metadata"]
    what = f"(PersistentVolumeClaim={key})"
    if meta.get("deletionTimestamp"):
        return f"persistentvolumeclaim is being deleted {what}"
    if (claim.get("status") or {}).get("phase") == "Lost":
        return f"persistentvolumeclaim bound to non-existent persistentvolume {what}"
    if name := spec.get("volumeName"):
        volume = storage.volumes.get(name)
        if volume is None:
            return f'failed to validate pvc, persistentvolume "{name}" not found {what}'
        if volume["metadata"].get("deletionTimestamp"):
            return f"failed to validate pvc, persistentvolume is being deleted {what}"
        if _BOUND not in (meta.get("annotations") or {}):
            return (
                f"pvc is considered unbound because it does not contain annotation {_BOUND} {what}"
            )
        return ""
    return _unbound_refusal(spec.get("storageClassName") or "", storage, what)


def _unbound_refusal(class_name: str, storage: StorageObjects, what: str) -> str:
    if not class_name:
        return f"unbound pvc must define a storage class {what}"
    found = storage.classes.get(class_name)
    if found is None:
        return (
            "failed to validate pvc, failed to get storage class, "
            f'storageclass "{class_name}" not found {what}'
        )
    if (found.get("volumeBindingMode") or "Immediate") == "Immediate":
        return (
            "failed to validate pvc, pvc with immediate volume binding mode must be bound "
            f"{what}: bind it, or use a storage class with WaitForFirstConsumer"
        )
    return ""


def _alternatives(claim: Json, storage: StorageObjects) -> list[NodeTerm]:
    spec = claim.get("spec") or {}
    if name := spec.get("volumeName"):
        return list(_volume_terms(storage.volumes[name].get("spec") or {}))
    found = storage.classes.get(spec.get("storageClassName") or "", {})
    return [
        tuple(
            LabelRequirement(e["key"], False, frozenset(e.get("values") or ()))
            for e in term["matchLabelExpressions"]
        )
        for term in found.get("allowedTopologies") or ()
        if term.get("matchLabelExpressions")
    ]


def _volume_terms(spec: Json) -> Iterator[NodeTerm]:
    """The node terms of a volume; the host name of a local one does not bind a pod to a node."""
    required = (spec.get("nodeAffinity") or {}).get("required") or {}
    local = bool(spec.get("local") or spec.get("hostPath"))
    for term in required.get("nodeSelectorTerms") or ():
        wanted = node_term(term.get("matchExpressions") or ())
        kept = tuple(r for r in wanted if not (local and r.key == HOSTNAME))
        if kept or (wanted and local):
            yield kept


def _combined(known: tuple[NodeTerm, ...], new: list[NodeTerm]) -> tuple[NodeTerm, ...]:
    """Every pair of alternatives that agree; all pairs if none do, so that the pod fails."""
    if not new:
        return known
    if not known:
        return tuple(new)
    joined = [_joined(a, b) for a in known for b in new]
    return tuple(term for term, agree in joined if agree) or tuple(term for term, _ in joined)


def _joined(a: NodeTerm, b: NodeTerm) -> tuple[NodeTerm, bool]:
    entries = {r.key: r for r in a}
    agree = True
    for each in b:
        known = entries.get(each.key)
        if known is not None:
            agree = agree and not known.conflicts(each)
            each = known.intersection(each)
        entries[each.key] = each
    return tuple(entries.values()), agree


def _driver(claim: Json, storage: StorageObjects) -> str:
    """The driver whose attachments a claim counts with; empty if no driver counts it."""
    spec = claim.get("spec") or {}
    if name := spec.get("volumeName"):
        source: Json = storage.volumes[name].get("spec") or {}
        if (csi := source.get("csi")) is not None:
            return str(csi.get("driver") or "")
        return _AWS_DRIVER if source.get("awsElasticBlockStore") is not None else ""
    found = storage.classes.get(spec.get("storageClassName") or "", {})
    provisioner = str(found.get("provisioner") or "")
    return CSI_DRIVERS.get(provisioner, provisioner)
