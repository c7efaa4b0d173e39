"""
The revisions of a StatefulSet: which pods are of its template, and which goes next.

Pure. A pod's label tells what it was made from; an update replaces pods from the highest number
down, each when all others are ready. There are no ControllerRevision objects, so no way back.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from moxwell.embedded.controllermanager.workloads import plan

Json = dict[str, Any]
REVISION = "controller-revision-hash"


def revision(owner: Json) -> str:
    """The name of what the template asks for now."""
    return f"{owner['metadata']['name']}-{plan.template_hash(owner['spec']['template'])}"


def labels(owner: Json, pod: Json, ordinal: int) -> Json:
    """The labels of a new pod."""
    return {
        **(pod["metadata"].get("labels") or {}),
        "statefulset.kubernetes.io/pod-name": pod["metadata"]["name"],
        "apps.kubernetes.io/pod-index": str(ordinal),
        REVISION: revision(owner),
    }


def is_current(owner: Json, pod: Json) -> bool:
    return bool((pod["metadata"].get("labels") or {}).get(REVISION) == revision(owner))


def outdated(owner: Json, pods: Iterable[Json]) -> tuple[str, ...]:
    """Pods to be made anew, the next one first; none while one of them is not ready."""
    strategy = owner["spec"].get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return ()
    active = [p for p in pods if plan.is_active(p)]
    whole = len(active) >= owner["spec"].get("replicas", 1)
    stale = [p for p in active if not is_current(owner, p)]
    waits = [p for p in active if not plan.is_ready(p) and p not in stale]
    if not whole or waits:
        return ()
    least = (strategy.get("rollingUpdate") or {}).get("partition") or 0
    numbered = sorted(((_ordinal(p), p["metadata"]["name"]) for p in stale), reverse=True)
    return tuple(name for number, name in numbered if number >= least)


def _ordinal(pod: Json) -> int:
    tail = pod["metadata"]["name"].rpartition("-")[2]
    return int(tail) if tail.isdigit() else 0


def status(owner: Json, pods: Sequence[Json]) -> Json:
    """What ``kubectl rollout status`` reads."""
    counted = plan.set_status(owner, pods)
    del counted["fullyLabeledReplicas"]
    active = [p for p in pods if plan.is_active(p)]
    new = sum(is_current(owner, p) for p in active)
    done = new == len(active)
    known = (owner.get("status") or {}).get("currentRevision") or revision(owner)
    return counted | {
        "updatedReplicas": new,
        "currentReplicas": new if done else len(active) - new,
        "updateRevision": revision(owner),
        "currentRevision": revision(owner) if done else known,
    }
