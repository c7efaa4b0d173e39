"""
Static pods of a control plane node, shown in the API as mirror pods.

They are the control plane components of kubeadm and the manifests that the user-data writes
(kube-vip, for example). Nothing runs: the lab serves the API itself. A deleted mirror pod is
created again.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from moxwell import yaml_documents
from moxwell.api.kinds import Resource
from moxwell.clock import Clock
from moxwell.errors import Conflict, Missing, Retryable
from moxwell.kube.client import Kube
from moxwell.lab.guests.control_plane import MANIFESTS, GuestControlPlane
from moxwell.lab.guests.kubelet import NODES

Json = dict[str, Any]
PODS = Resource("", "v1", "pods", "Pod")
POLL_SECONDS, RETRY_SECONDS = 15.0, 1.0  # RETRY: until the Node is registered
ETCD_IMAGE = "registry.k8s.io/etcd:3.6.5-0"


def static_pods(control_plane: GuestControlPlane, files: Mapping[str, str]) -> tuple[Json, ...]:
    """The static pod manifests on the disk of a control plane node."""
    own = [_component(name, control_plane) for name in _components(control_plane)]
    return (*own, *_manifests(files))


def _components(control_plane: GuestControlPlane) -> tuple[str, ...]:
    etcd = ("etcd",) if control_plane.stacked else ()
    return ("kube-apiserver", "kube-controller-manager", "kube-scheduler", *etcd)


def _component(name: str, control_plane: GuestControlPlane) -> Json:
    image = ETCD_IMAGE if name == "etcd" else f"registry.k8s.io/{name}:{control_plane.version}"
    container = {"name": name, "image": image, "command": [name]}
    labels = {"component": name, "tier": "control-plane"}
    meta = {"name": name, "namespace": "kube-system", "labels": labels}
    spec = {
        "hostNetwork": True,
        "containers": [container],
        "priorityClassName": "system-node-critical",
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _manifests(files: Mapping[str, str]) -> Iterator[Json]:
    for path, text in sorted(files.items()):
        if not path.startswith(MANIFESTS):
            continue
        with contextlib.suppress(yaml.YAMLError):  # a kubelet skips unreadable manifests
            pod = yaml_documents.load(text)
            if isinstance(pod, dict) and pod.get("kind") == "Pod":
                yield pod


def mirror_pod(pod: Json, node: str, uid: str) -> Json:
    """The mirror pod of a static pod."""
    digest = hashlib.sha256(yaml.safe_dump(pod).encode()).hexdigest()[:32]
    metadata = pod.get("metadata") or {}
    annotations = {
        **(metadata.get("annotations") or {}),
        "kubernetes.io/config.hash": digest,
        "kubernetes.io/config.mirror": digest,
        "kubernetes.io/config.source": "file",
    }
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
    meta = {
        "name": f"{metadata.get('name')}-{node}",
        "namespace": metadata.get("namespace") or "default",
        "labels": metadata.get("labels") or {},
        "annotations": annotations,
        "ownerReferences": [owner],
    }
    spec = {**pod.get("spec", {}), "nodeName": node, "automountServiceAccountToken": False}
    spec["tolerations"] = [{"operator": "Exists", "effect": "NoExecute"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


class MirrorPods:
    """Keeps the mirror pods of one node."""

    def __init__(self, kube: Kube, node: str, pods: tuple[Json, ...], clock: Clock) -> None:
        self._kube, self._node, self._pods, self._clock = kube, node, pods, clock

    async def run(self) -> None:
        """Create missing mirror pods periodically until cancelled."""
        interval = RETRY_SECONDS
        while True:
            with contextlib.suppress(Retryable, Missing):
                await self.ensure()
                interval = POLL_SECONDS
            await self._clock.sleep(interval)

    async def ensure(self) -> None:
        """Create the missing mirror pods; a kubelet lists only the pods of its own node."""
        uid = (await self._kube.get(NODES, self._node))["metadata"]["uid"]
        page = await self._kube.list(PODS, fields=f"spec.nodeName={self._node}")
        known = {(p["metadata"]["namespace"], p["metadata"]["name"]) for p in page.items}
        for pod in self._pods:
            created = mirror_pod(pod, self._node, uid)
            meta = created["metadata"]
            if (meta["namespace"], meta["name"]) not in known:
                with contextlib.suppress(Conflict):
                    await self._kube.create(created, PODS)
