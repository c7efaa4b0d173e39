"""
What a workload needs next: which pods to make, which to delete, what to say of it.

Pure. In flow objects as dicts, as these are other people's kinds of which we use a few fields; out
flow names and new objects. Sizes during a rollout come from :mod:`moxwell.scheduling.rollout`.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moxwell.scheduling import rollout

Json = dict[str, Any]
HASH = "pod-template-hash"
_EXISTS = {"operator": "Exists"}
ALWAYS_THERE = (  # a daemon's pods bear what drives others from their node
    {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", **_EXISTS},
    {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", **_EXISTS},
    {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule", **_EXISTS},
    {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule", **_EXISTS},
    {"key": "node.kubernetes.io/pid-pressure", "effect": "NoSchedule", **_EXISTS},
    {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", **_EXISTS},
)
REVISION = "deployment.kubernetes.io/revision"


def template_hash(template: Mapping[str, Any]) -> str:
    """A short name for what a template means: equal templates, equal names."""
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
    """Whether ``uid`` controls the object."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(o["uid"] == uid and o.get("controller") for o in owners)


def is_active(pod: Mapping[str, Any]) -> bool:
    """Neither ended nor leaving."""
    phase = (pod.get("status") or {}).get("phase")
    return "deletionTimestamp" not in pod["metadata"] and phase not in {"Succeeded", "Failed"}


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Its Ready condition is true."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def make_pod(owner: Json, template: Mapping[str, Any], **place: Any) -> Json:
    """A pod from a template; ``place`` may give name and nodeName, otherwise a name is made."""
    meta = dict(template.get("metadata") or {})
    meta["namespace"] = owner["metadata"]["namespace"]
    meta["ownerReferences"] = [owner_reference(owner)]
    if name := place.get("name"):
        meta["name"] = name
    else:
        meta["generateName"] = f"{owner['metadata']['name']}-"
    spec = dict(template["spec"])
    if node := place.get("node"):
        spec["nodeName"] = node
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *ALWAYS_THERE]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


# Deployments


def new_set(deployment: Json, replicas: int, revision: int) -> Json:
    """The ReplicaSet for the template a deployment asks for now."""
    template = deployment["spec"]["template"]
    short = template_hash(template)
    labels = {**(template.get("metadata") or {}).get("labels", {}), HASH: short}
    meta = {
        "name": f"{deployment['metadata']['name']}-{short}",
        "namespace": deployment["metadata"]["namespace"],
        "labels": labels,
        "annotations": {REVISION: str(revision)},
        "ownerReferences": [owner_reference(deployment)],
    }
    selector = dict(deployment["spec"]["selector"])
    selector["matchLabels"] = {**selector.get("matchLabels", {}), HASH: short}
    body = {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}}
    spec = {"replicas": replicas, "selector": selector, "template": body}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": spec}


def parts(deployment: Json, sets: Iterable[Json]) -> list[rollout.Part]:
    """The sets of a deployment, as the rollout sees them."""
    short = template_hash(deployment["spec"]["template"])
    return [
        rollout.Part(
            name=s["metadata"]["name"],
            wanted=s["spec"].get("replicas", 1),
            actual=(s.get("status") or {}).get("replicas", 0),
            available=(s.get("status") or {}).get("availableReplicas", 0),
            current=s["metadata"].get("labels", {}).get(HASH) == short,
            order=s["metadata"].get("creationTimestamp", ""),
        )
        for s in sets
    ]


def policy(deployment: Json) -> rollout.Policy:
    """How a deployment rolls."""
    spec = deployment["spec"]
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    replicas = spec.get("replicas", 1)
    if (spec.get("strategy") or {}).get("type") == "Recreate":
        return rollout.Policy(replicas, 0, replicas)
    surge, fewer = rolling.get("maxSurge", "25%"), rolling.get("maxUnavailable", "25%")
    return rollout.policy(replicas, surge, fewer)


def deployment_status(deployment: Json, sets: Sequence[Json]) -> Json:
    """What ``kubectl rollout status`` reads."""
    known = parts(deployment, sets)
    ready = sum((s.get("status") or {}).get("readyReplicas", 0) for s in sets)
    available, wanted = sum(p.available for p in known), deployment["spec"].get("replicas", 1)
    done = available >= wanted
    conditions = [
        _condition("Available", done, "MinimumReplicasAvailable", "MinimumReplicasUnavailable"),
        _condition("Progressing", True, "NewReplicaSetAvailable", ""),
    ]
    return {
        "observedGeneration": deployment["metadata"].get("generation", 1),
        "replicas": sum(p.actual for p in known),
        "updatedReplicas": sum(p.actual for p in known if p.current),
        "readyReplicas": ready,
        "availableReplicas": available,
        "unavailableReplicas": max(0, wanted - available) or None,
        "conditions": conditions,
    }


def _condition(kind: str, good: bool, reason: str, otherwise: str) -> Json:
    return {"type": kind, "status": str(good), "reason": reason if good else otherwise}


# Sets of pods


def pods_to_leave(pods: Iterable[Json], count: int) -> tuple[str, ...]:
    """The pods a smaller set gives up: unscheduled ones first, then unready, then the youngest."""
    ranked = sorted(
        (p for p in pods if is_active(p)),
        key=lambda p: (
            bool(p["spec"].get("nodeName")),
            is_ready(p),
            _backwards(p["metadata"].get("creationTimestamp", "")),
        ),
    )
    return tuple(p["metadata"]["name"] for p in ranked[:count])


def _backwards(text: str) -> tuple[int, ...]:
    return tuple(-ord(c) for c in text)


def set_status(owner: Json, pods: Sequence[Json]) -> Json:
    """Counts of a ReplicaSet or StatefulSet."""
    active = [p for p in pods if is_active(p)]
    ready = sum(is_ready(p) for p in active)
    return {
        "observedGeneration": owner["metadata"].get("generation", 1),
        "replicas": len(active),
        "fullyLabeledReplicas": len(active),
        "readyReplicas": ready,
        "availableReplicas": ready,
    }


def next_ordinal(owner: Json, pods: Iterable[Json]) -> int | None:
    """The next pod of a StatefulSet: in order, and only after the one before is ready."""
    there = {p["metadata"]["name"]: p for p in pods}
    parallel = owner["spec"].get("podManagementPolicy") == "Parallel"
    for ordinal in range(owner["spec"].get("replicas", 1)):
        pod = there.get(f"{owner['metadata']['name']}-{ordinal}")
        if pod is None:
            return ordinal
        if not is_ready(pod) and not parallel:
            return None
    return None


def excess_ordinals(owner: Json, pods: Iterable[Json]) -> tuple[str, ...]:
    """Pods beyond the size of a StatefulSet, highest first."""
    limit, prefix = owner["spec"].get("replicas", 1), f"{owner['metadata']['name']}-"
    numbered = [(int(n.removeprefix(prefix)), n) for n in _numbered(pods, prefix)]
    return tuple(name for number, name in sorted(numbered, reverse=True) if number >= limit)


def _numbered(pods: Iterable[Json], prefix: str) -> list[str]:
    names = [p["metadata"]["name"] for p in pods if is_active(p)]
    return [n for n in names if n.startswith(prefix) and n.removeprefix(prefix).isdigit()]


def claims_of(owner: Json, ordinal: int) -> tuple[list[Json], list[Json]]:
    """The volume claims of one pod of a StatefulSet, and the volumes that name them."""
    claims, volumes = [], []
    for template in owner["spec"].get("volumeClaimTemplates") or ():
        short = template["metadata"]["name"]
        name = f"{short}-{owner['metadata']['name']}-{ordinal}"
        meta = {**template["metadata"], "name": name}
        meta["namespace"] = owner["metadata"]["namespace"]
        head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta}
        claims.append(head | {"spec": template["spec"]})
        volumes.append({"name": short, "persistentVolumeClaim": {"claimName": name}})
    return claims, volumes


# Disruption budgets


def budget_status(budget: Json, pods: Sequence[Json]) -> Json:
    """How many pods may go now; what the eviction endpoint reads."""
    spec, expected = budget["spec"], len(pods)
    healthy = sum(is_ready(p) for p in pods)
    if "minAvailable" in spec:
        desired = rollout.share(spec["minAvailable"], expected, up=True)
    else:
        desired = expected - rollout.share(spec.get("maxUnavailable", 0), expected, up=True)
    return {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "currentHealthy": healthy,
        "desiredHealthy": max(0, desired),
        "expectedPods": expected,
        "disruptionsAllowed": max(0, healthy - max(0, desired)),
    }
