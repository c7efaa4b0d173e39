"""The objects that a pod or a persistent volume refers to. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from moxwell.embedded.apiserver.builtin.pod_defaults import MIRROR

Object = Mapping[str, Any]
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
# Volume sources with a reference to a Secret: the field of the reference and the key of its name
_SECRET_REFS = ("cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos")
_CSI_NODE_REFS = ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef")
_WITHOUT_OBJECTS = frozenset(
    [
        "awsElasticBlockStore", "azureDisk", "cephfs", "cinder", "downwardAPI", "emptyDir", "fc",
        "flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "hostPath", "image", "iscsi",
        "nfs", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos",
        "vsphereVolume",
    ]
)  # fmt: skip
_VOLUMES_WITH_OBJECTS = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_SOURCES_WITH_OBJECTS = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}


def is_mirror(pod: Object) -> bool:
    """Report whether a kubelet created the pod for a static pod."""
    return MIRROR in (pod["metadata"].get("annotations") or {})


def secrets_of(pod: Object) -> Iterator[str]:
    """Yield the names of the Secrets of a pod."""
    spec = pod.get("spec") or {}
    for ref in spec.get("imagePullSecrets") or ():
        yield from _name(ref)
    yield from _from_containers(spec, "secretRef", "secretKeyRef")
    for volume in spec.get("volumes") or ():
        yield from _secrets_of_volume(volume)


def config_maps_of(pod: Object) -> Iterator[str]:
    """Yield the names of the ConfigMaps of a pod."""
    spec = pod.get("spec") or {}
    yield from _from_containers(spec, "configMapRef", "configMapKeyRef")
    for volume in spec.get("volumes") or ():
        yield from _name(volume.get("configMap"))
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield from _name(source.get("configMap"))


def claims_of(pod: Object) -> Iterator[str]:
    """Yield the names of the PersistentVolumeClaims of a pod."""
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            yield from _name(volume["persistentVolumeClaim"], "claimName")
        elif volume.get("ephemeral"):
            yield f"{pod['metadata']['name']}-{volume['name']}"


def volume_secrets(volume: Object) -> Iterator[tuple[str, str]]:
    """Yield namespace and name of the Secrets of a PersistentVolume that a kubelet reads."""
    spec = volume.get("spec") or {}
    claim = (spec.get("claimRef") or {}).get("namespace", "")
    azure = spec.get("azureFile") or {}
    refs = [(spec.get(source) or {}).get("secretRef") for source in _SECRET_REFS]
    refs += [(spec.get("csi") or {}).get(field) for field in _CSI_NODE_REFS]
    refs.append({"name": azure.get("secretName"), "namespace": azure.get("secretNamespace")})
    for ref in refs:
        if ref and ref.get("name"):
            yield ref.get("namespace") or claim, ref["name"]


def api_object_reference(pod: Object) -> str:
    """The first kind of object that the pod refers to; empty if there is none."""
    spec = pod.get("spec") or {}
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    if any(True for _ in secrets_of(pod)):
        return "secrets"
    if any(True for _ in config_maps_of(pod)):
        return "configmaps"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    return next(filter(None, map(_reference_of_volume, spec.get("volumes") or ())), "")


def _reference_of_volume(volume: Object) -> str:
    if any(volume.get(source) is not None for source in _WITHOUT_OBJECTS):
        return ""
    for source, shown in _VOLUMES_WITH_OBJECTS.items():
        if volume.get(source) is not None:
            return shown
    if volume.get("projected") is None:
        return f"an unknown type of volume ({volume.get('name')})"
    for projected in volume["projected"].get("sources") or ():
        for source, shown in _SOURCES_WITH_OBJECTS.items():
            if projected.get(source) is not None:
                return shown
    return ""


def _secrets_of_volume(volume: Object) -> Iterator[str]:
    yield from _name(volume.get("secret"), "secretName")
    yield from _name(volume.get("azureFile"), "secretName")
    yield from _name((volume.get("csi") or {}).get("nodePublishSecretRef"))
    for source in _SECRET_REFS:
        yield from _name((volume.get(source) or {}).get("secretRef"))
    for projected in (volume.get("projected") or {}).get("sources") or ():
        yield from _name(projected.get("secret"))


def _from_containers(spec: Object, whole: str, key: str) -> Iterator[str]:
    for kind in _CONTAINERS:
        for container in spec.get(kind) or ():
            for source in container.get("envFrom") or ():
                yield from _name(source.get(whole))
            for variable in container.get("env") or ():
                yield from _name((variable.get("valueFrom") or {}).get(key))


def _name(ref: Object | None, key: str = "name") -> Iterator[str]:
    if ref and ref.get(key):
        yield ref[key]
