"""What the workload controllers share: pods and owners as dicts. Pure except for ``owned_by``."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from moxwell.api.kinds import Resource
from moxwell.kube.reader import Reader
from moxwell.runtime.key import Key

Json = dict[str, Any]
TEMPLATE_HASH = "pod-template-hash"
_EXISTS = {"operator": "Exists"}
DAEMON_TOLERATIONS = (  # added by the DaemonSet controller
    {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", **_EXISTS},
    {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", **_EXISTS},
    {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule", **_EXISTS},
    {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule", **_EXISTS},
    {"key": "node.kubernetes.io/pid-pressure", "effect": "NoSchedule", **_EXISTS},
    {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", **_EXISTS},
)


async def owned_by(owner: Json, resource: Resource, reader: Reader) -> tuple[Json, ...]:
    """
    The objects of a resource that ``owner`` controls, read live.

    A cache may lack the last write, and a stale count would create a pod too many.
    """
    page = await reader.list(resource, owner["metadata"]["namespace"])
    return tuple(o for o in page.items if is_owned(o, owner["metadata"]["uid"]))


def owner_key(kind: str) -> Callable[[Json], list[Key]]:
    """A function from an object to the key of its controller, if that is of ``kind``."""

    def keys(obj: Json) -> list[Key]:
        meta = obj["metadata"]
        return [
            Key(meta.get("namespace", ""), o["name"])
            for o in meta.get("ownerReferences") or ()
            if o["kind"] == kind and o.get("controller")
        ]

    return keys


def template_hash(template: Mapping[str, Any]) -> str:
    """A short hash of a pod template; equal templates have equal hashes."""
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def owner_reference(owner: Mapping[str, Any]) -> Json:
    """A controller reference to ``owner``."""
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_owned(obj: Mapping[str, Any], uid: str) -> bool:
    """Whether the object with this UID controls ``obj``."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(o["uid"] == uid and o.get("controller") for o in owners)


def is_active(pod: Mapping[str, Any]) -> bool:
    """Neither finished nor being deleted."""
    phase = (pod.get("status") or {}).get("phase")
    return "deletionTimestamp" not in pod["metadata"] and phase not in {"Succeeded", "Failed"}


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether the Ready condition of a pod is true."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def new_pod(owner: Json, template: Mapping[str, Any], *, name: str = "", node: str = "") -> Json:
    """A pod from a template; without ``name`` the API generates one; ``node`` is a daemon's."""
    meta = dict(template.get("metadata") or {})
    meta["namespace"] = owner["metadata"]["namespace"]
    meta["ownerReferences"] = [owner_reference(owner)]
    if name:
        meta["name"] = name
    else:
        meta["generateName"] = f"{owner['metadata']['name']}-"
    spec = dict(template["spec"])
    if node:
        spec["nodeName"] = node
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *DAEMON_TOLERATIONS]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def replica_status(owner: Json, pods: tuple[Json, ...]) -> Json:
    """The replica counts of a ReplicaSet or StatefulSet."""
    active = [p for p in pods if is_active(p)]
    ready = sum(is_ready(p) for p in active)
    return {
        "observedGeneration": owner["metadata"].get("generation", 1),
        "replicas": len(active),
        "readyReplicas": ready,
        "availableReplicas": ready,
    }
