"""
The next move and the status of a StatefulSet. Pure.

A label of a pod is the revision that it was created from. A rolling update replaces pods from the
highest ordinal down, each when all others are ready. There are no ControllerRevision objects, so
there is no rollback; ``currentRevision`` is the label of the pods that are still outdated.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from moxwell.embedded.controllermanager.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from moxwell.embedded.controllermanager.workloads import (
    is_active,
    is_ready,
    new_pod,
    replica_status,
    template_hash,
)
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Create, Delete, Write, Writes

Json = dict[str, Any]
REVISION = "controller-revision-hash"


def next_move(owner: Json, pods: Sequence[Json]) -> WriteMove:
    """Create the next pod with its claims, and delete at most one surplus or outdated pod."""
    ordinal, namespace = next_ordinal(owner, pods), owner["metadata"]["namespace"]
    writes: list[Write] = [] if ordinal is None else new_member(owner, ordinal)
    names = surplus_pods(owner, pods) or outdated_pods(owner, pods)
    writes += [Delete(PODS, name, namespace) for name in names[:1]]
    return Writes(tuple(writes)) if writes else Done()


def next_ordinal(owner: Json, pods: Iterable[Json]) -> int | None:
    """The ordinal of the next pod to create: in order, each after the one before is ready."""
    there = {p["metadata"]["name"]: p for p in pods}
    parallel = owner["spec"].get("podManagementPolicy") == "Parallel"
    for ordinal in range(owner["spec"].get("replicas", 1)):
        pod = there.get(f"{owner['metadata']['name']}-{ordinal}")
        if pod is None:
            return ordinal
        if not is_ready(pod) and not parallel:
            return None
    return None


def new_member(owner: Json, ordinal: int) -> list[Write]:
    """The claims, which outlive their pod and may exist, and the pod of an ordinal."""
    claims, volumes = new_claims(owner, ordinal)
    name = f"{owner['metadata']['name']}-{ordinal}"
    pod = new_pod(owner, owner["spec"]["template"], name=name)
    pod["spec"]["volumes"] = [*(pod["spec"].get("volumes") or ()), *volumes]
    pod["spec"]["hostname"] = name
    pod["metadata"]["labels"] = {
        **(pod["metadata"].get("labels") or {}),
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(ordinal),
        REVISION: revision(owner),
    }
    return [*(Create(c, PERSISTENT_VOLUME_CLAIMS) for c in claims), Create(pod, PODS)]


def new_claims(owner: Json, ordinal: int) -> tuple[list[Json], list[Json]]:
    """The PersistentVolumeClaims of one pod, and the volumes of the pod that name them."""
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


def surplus_pods(owner: Json, pods: Iterable[Json]) -> tuple[str, ...]:
    """Pods beyond the replicas, the highest ordinal first."""
    limit, prefix = owner["spec"].get("replicas", 1), f"{owner['metadata']['name']}-"
    names = [p["metadata"]["name"] for p in pods if is_active(p)]
    members = [n for n in names if n.startswith(prefix) and n.removeprefix(prefix).isdigit()]
    numbered = sorted(((int(n.removeprefix(prefix)), n) for n in members), reverse=True)
    return tuple(name for ordinal, name in numbered if ordinal >= limit)


def revision(owner: Json) -> str:
    """The revision of the present template."""
    return f"{owner['metadata']['name']}-{template_hash(owner['spec']['template'])}"


def _revision_of(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(REVISION, ""))


def outdated_pods(owner: Json, pods: Iterable[Json]) -> tuple[str, ...]:
    """Pods of an old revision to replace, the next first; none while a new one is not ready."""
    strategy = owner["spec"].get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return ()
    active = [p for p in pods if is_active(p)]
    complete = len(active) >= owner["spec"].get("replicas", 1)
    outdated = [p for p in active if _revision_of(p) != revision(owner)]
    starting = [p for p in active if not is_ready(p) and p not in outdated]
    if not complete or starting:
        return ()
    partition = (strategy.get("rollingUpdate") or {}).get("partition") or 0
    numbered = sorted(((_ordinal(p), p["metadata"]["name"]) for p in outdated), reverse=True)
    return tuple(name for ordinal, name in numbered if ordinal >= partition)


def _ordinal(pod: Json) -> int:
    tail = pod["metadata"]["name"].rpartition("-")[2]
    return int(tail) if tail.isdigit() else 0


def describe(owner: Json, pods: tuple[Json, ...]) -> Json:
    """The counts and revisions that ``kubectl rollout status`` reads."""
    active, update = [p for p in pods if is_active(p)], revision(owner)
    old = sorted({_revision_of(p) for p in active} - {update, ""})
    updated = sum(_revision_of(p) == update for p in active)
    done = updated == len(active)
    return replica_status(owner, pods) | {
        "updatedReplicas": updated,
        "currentReplicas": updated if done else len(active) - updated,
        "updateRevision": update,
        "currentRevision": old[0] if old and not done else update,
    }
