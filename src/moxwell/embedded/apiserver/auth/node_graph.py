"""
The graph of the Node authorizer: which objects belong to the pods and volumes of a node.

``node <- pod <- secret, configmap, service account, claim``, ``claim <- volume <- secret`` and
``node <- volume attachment``. A mirror pod, which a kubelet creates itself, leads to no object.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moxwell.embedded.apiserver.auth import pod_references

Object = Mapping[str, Any]
Vertex = tuple[str, str, str]  # resource, namespace, name
Claim = tuple[str, str]


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod that is bound to a node, and everything it refers to."""

    uid: str
    node: str
    vertices: frozenset[Vertex]


def vertices_of(pod: Object) -> frozenset[Vertex]:
    """The pod and the objects that it refers to."""
    meta, spec = pod["metadata"], pod.get("spec") or {}
    namespace = meta["namespace"]
    found = {("pods", namespace, meta["name"])}
    if pod_references.is_mirror(pod):
        return frozenset(found)
    account = spec.get("serviceAccountName")
    names = (
        ("serviceaccounts", (account,) if account else ()),
        ("secrets", pod_references.secrets_of(pod)),
        ("configmaps", pod_references.config_maps_of(pod)),
        ("persistentvolumeclaims", pod_references.claims_of(pod)),
    )
    for resource, listed in names:
        found |= {(resource, namespace, name) for name in listed}
    return frozenset(found)


class NodeGraph:
    """Answers whether an object is related to a node."""

    def __init__(self) -> None:
        self._pods: dict[str, BoundPod] = {}
        self._nodes: dict[Vertex, Counter[str]] = {}
        self._claims: dict[str, Claim] = {}  # of each volume
        self._volume_secrets: dict[str, frozenset[Claim]] = {}
        self._volumes_of_secret: dict[Claim, set[str]] = {}
        self._attachments: dict[str, str] = {}

    def is_related(self, node: str, resource: str, namespace: str, name: str) -> bool:
        if resource == "persistentvolumes":
            return self._has_volume(node, name)
        if resource == "volumeattachments":
            return self._attachments.get(name) == node
        if node in self._nodes.get((resource, namespace, name), ()):
            return True
        volumes = self._volumes_of_secret.get((namespace, name), ())
        return resource == "secrets" and any(self._has_volume(node, v) for v in volumes)

    def _has_volume(self, node: str, volume: str) -> bool:
        claim = self._claims.get(volume)
        vertex = ("persistentvolumeclaims", *claim) if claim else ("", "", "")
        return node in self._nodes.get(vertex, ())

    # pods

    def has_pod(self, key: str, uid: str) -> bool:
        """Report whether the pod is known; what a bound pod refers to does not change."""
        known = self._pods.get(key)
        return known is not None and known.uid == uid

    def put_pod(self, key: str, pod: Object) -> None:
        self.drop_pod(key)
        node = (pod.get("spec") or {}).get("nodeName")
        if not node:
            return
        made = BoundPod(pod["metadata"].get("uid", ""), node, vertices_of(pod))
        self._pods[key] = made
        for vertex in made.vertices:
            self._nodes.setdefault(vertex, Counter())[node] += 1

    def drop_pod(self, key: str) -> None:
        known = self._pods.pop(key, None)
        if known is None:
            return
        for vertex in known.vertices:
            nodes = self._nodes[vertex]
            nodes[known.node] -= 1
            if not nodes[known.node]:
                del nodes[known.node]
            if not nodes:
                del self._nodes[vertex]

    # volumes

    def put_volume(self, name: str, volume: Object) -> None:
        self.drop_volume(name)
        claim = (volume.get("spec") or {}).get("claimRef")
        if not claim:
            return
        self._claims[name] = (claim.get("namespace", ""), claim.get("name", ""))
        self._volume_secrets[name] = frozenset(pod_references.volume_secrets(volume))
        for secret in self._volume_secrets[name]:
            self._volumes_of_secret.setdefault(secret, set()).add(name)

    def drop_volume(self, name: str) -> None:
        self._claims.pop(name, None)
        for secret in self._volume_secrets.pop(name, ()):
            volumes = self._volumes_of_secret[secret]
            volumes.discard(name)
            if not volumes:
                del self._volumes_of_secret[secret]

    def put_attachment(self, name: str, attachment: Object) -> None:
        self._attachments[name] = (attachment.get("spec") or {}).get("nodeName", "")

    def drop_attachment(self, name: str) -> None:
        self._attachments.pop(name, None)

    def load(
        self,
        pods: Iterable[tuple[str, Object]],
        volumes: Iterable[tuple[str, Object]],
        attachments: Iterable[tuple[str, Object]],
    ) -> None:
        """Add objects by key."""
        for key, pod in pods:
            self.put_pod(key, pod)
        for name, volume in volumes:
            self.put_volume(name, volume)
        for name, attachment in attachments:
            self.put_attachment(name, attachment)
