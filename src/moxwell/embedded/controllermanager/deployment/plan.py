"""
The next move and the status of a Deployment. Pure.

The sizes during a rollout come from :mod:`moxwell.scheduling.rollout`.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from moxwell.embedded.controllermanager.resources import REPLICA_SETS
from moxwell.embedded.controllermanager.workloads import (
    TEMPLATE_HASH,
    owner_reference,
    template_hash,
)
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Create, Delete, Merge, Write, Writes
from moxwell.scheduling import rollout

Json = dict[str, Any]
REVISION = "deployment.kubernetes.io/revision"
HISTORY = 10  # Kubernetes' default of revisionHistoryLimit


class DeploymentReason(StrEnum):
    """Reasons of the conditions of a Deployment."""

    AVAILABLE = "MinimumReplicasAvailable"
    UNAVAILABLE = "MinimumReplicasUnavailable"
    PROGRESSING = "NewReplicaSetAvailable"


def next_move(deployment: Json, sets: Sequence[Json]) -> WriteMove:
    """Create the ReplicaSet of the template, scale all sets, delete old empty ones."""
    counts, namespace = replica_counts(deployment, sets), deployment["metadata"]["namespace"]
    writes: list[Write] = []
    if not any(c.current for c in counts):
        created = new_set(deployment, 0, len(sets) + 1)
        counts = replica_counts(deployment, [*sets, created])
        writes.append(Create(created, REPLICA_SETS))
    for size in rollout.scale(policy(deployment), counts):
        change = {"spec": {"replicas": size.replicas}}
        writes.append(Merge(REPLICA_SETS, size.name, change, namespace))
    history = deployment["spec"].get("revisionHistoryLimit", HISTORY)
    for name in rollout.sets_beyond_history(counts, history):
        writes.append(Delete(REPLICA_SETS, name, namespace))
    return Writes(tuple(writes)) if writes else Done()


def new_set(deployment: Json, replicas: int, revision: int) -> Json:
    """The ReplicaSet of the deployment's present template."""
    template = deployment["spec"]["template"]
    short = template_hash(template)
    labels = {**(template.get("metadata") or {}).get("labels", {}), TEMPLATE_HASH: short}
    meta = {
        "name": f"{deployment['metadata']['name']}-{short}",
        "namespace": deployment["metadata"]["namespace"],
        "labels": labels,
        "annotations": {REVISION: str(revision)},
        "ownerReferences": [owner_reference(deployment)],
    }
    selector = dict(deployment["spec"]["selector"])
    selector["matchLabels"] = {**selector.get("matchLabels", {}), TEMPLATE_HASH: short}
    body = {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}}
    spec = {"replicas": replicas, "selector": selector, "template": body}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": spec}


def replica_counts(deployment: Json, sets: Iterable[Json]) -> list[rollout.ReplicaCounts]:
    """The desired, actual and available replicas of each ReplicaSet."""
    short = template_hash(deployment["spec"]["template"])
    return [
        rollout.ReplicaCounts(
            name=s["metadata"]["name"],
            wanted=s["spec"].get("replicas", 1),
            actual=(s.get("status") or {}).get("replicas", 0),
            available=(s.get("status") or {}).get("availableReplicas", 0),
            current=s["metadata"].get("labels", {}).get(TEMPLATE_HASH) == short,
            order=s["metadata"].get("creationTimestamp", ""),
        )
        for s in sets
    ]


def policy(deployment: Json) -> rollout.RolloutPolicy:
    """The rollout strategy; ``Recreate`` stops all old pods first."""
    spec = deployment["spec"]
    strategy, replicas = spec.get("strategy") or {}, spec.get("replicas", 1)
    if strategy.get("type") == "Recreate":
        return rollout.RolloutPolicy(replicas, 0, replicas)
    rolling = strategy.get("rollingUpdate") or {}
    surge, unavailable = rolling.get("maxSurge", "25%"), rolling.get("maxUnavailable", "25%")
    return rollout.rollout_policy(replicas, surge, unavailable)


def describe(deployment: Json, sets: Sequence[Json]) -> Json:
    """The counts and conditions that ``kubectl rollout status`` reads."""
    counts = replica_counts(deployment, sets)
    ready = sum((s.get("status") or {}).get("readyReplicas", 0) for s in sets)
    available, desired = sum(c.available for c in counts), deployment["spec"].get("replicas", 1)
    enough = available >= desired
    reason = DeploymentReason.AVAILABLE if enough else DeploymentReason.UNAVAILABLE
    return {
        "observedGeneration": deployment["metadata"].get("generation", 1),
        "replicas": sum(c.actual for c in counts),
        "updatedReplicas": sum(c.actual for c in counts if c.current),
        "readyReplicas": ready,
        "availableReplicas": available,
        "unavailableReplicas": max(0, desired - available) or None,
        "conditions": [
            {"type": "Available", "status": str(enough), "reason": str(reason)},
            {
                "type": "Progressing",
                "status": "True",
                "reason": str(DeploymentReason.PROGRESSING),
            },
        ],
    }
