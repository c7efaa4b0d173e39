"""
Static pods: what a kubelet runs from files, and shows in the API as mirror pods.

A control plane node has those of kubeadm, and whatever manifests its user data wrote (kube-vip, for
one). A mirror pod says what would run: nothing of it does, the API itself is served by the lab.
Deleted, it comes back, because the file is still there.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from moxwell.api.kinds import Resource
from moxwell.clock import Clock
from moxwell.errors import Conflict, Missing, Retryable
from moxwell.kube.client import Kube
from moxwell.lab.guests.control_plane import MANIFESTS, Plane
from moxwell.lab.guests.kubelet import NODES

Json = dict[str, Any]
PODS = Resource("", "v1", "pods", "Pod")
LOOK_SECONDS, SOON_SECONDS = 15.0, 1.0  # until the Node is registered
ETCD_IMAGE = "registry.k8s.io/etcd:3.6.5-0"


def static_pods(plane: Plane, files: Mapping[str, str]) -> tuple[Json, ...]:
    """The manifests on a control plane node's disk."""
    own = [_component(name, plane) for name in _components(plane)]
    return (*own, *_written(files))


def _components(plane: Plane) -> tuple[str, ...]:
    etcd = ("etcd",) if plane.stacked else ()
    return ("kube-apiserver", "kube-controller-manager", "kube-scheduler", *etcd)


def _component(name: str, plane: Plane) -> Json:
    image = ETCD_IMAGE if name == "etcd" else f"registry.k8s.io/{name}:{plane.version}"
    container = {"name": name, "image": image, "command": [name]}
    labels = {"component": name, "tier": "control-plane"}
    meta = {"name": name, "namespace": "kube-system", "labels": labels}
    spec = {
        "hostNetwork": True,
        "containers": [container],
        "priorityClassName": "system-node-critical",
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _written(files: Mapping[str, str]) -> Iterator[Json]:
    for path, text in sorted(files.items()):
        if not path.startswith(MANIFESTS):
            continue
        with contextlib.suppress(yaml.YAMLError):  # a kubelet passes over what it cannot read
            pod = yaml.safe_load(text)
            if isinstance(pod, dict) and pod.get("kind") == "Pod":
                yield pod


def mirror(pod: Json, node: str, uid: str) -> Json:
    """A static pod as the API shows it."""
    digest = hashlib.sha256(yaml.safe_dump(pod).encode()).hexdigest()[:32]
    old = pod.get("metadata") or {}
    notes = {
        **(old.get("annotations") or {}),
        "kubernetes.io/config.hash": digest,
        "kubernetes.io/config.mirror": digest,
        "kubernetes.io/config.source": "file",
    }
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
    meta = {
        "name": f"{old.get('name')}-{node}",
        "namespace": old.get("namespace") or "default",
        "labels": old.get("labels") or {},
        "annotations": notes,
        "ownerReferences": [owner],
    }
    spec = {**pod.get("spec", {}), "nodeName": node, "automountServiceAccountToken": False}
    spec["tolerations"] = [{"operator": "Exists", "effect": "NoExecute"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


class Mirrors:
    """Keeps the mirror pods of one node."""

    def __init__(self, kube: Kube, node: str, pods: tuple[Json, ...], clock: Clock) -> None:
        self._kube, self._node, self._pods, self._clock = kube, node, pods, clock

    async def run(self) -> None:
        """Look at the files now and then; ends only by being cancelled."""
        pause = SOON_SECONDS
        while True:
            with contextlib.suppress(Retryable, Missing):
                await self.ensure()
                pause = LOOK_SECONDS
            await self._clock.sleep(pause)

    async def ensure(self) -> None:
        """Every static pod has its mirror."""
        uid = (await self._kube.get(NODES, self._node))["metadata"]["uid"]
        for pod in self._pods:
            made = mirror(pod, self._node, uid)
            meta = made["metadata"]
            if await self._kube.find(PODS, meta["name"], meta["namespace"]) is None:
                with contextlib.suppress(Conflict):
                    await self._kube.create(made, PODS)
