"""The next move and the status of a ReplicaSet. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from moxwell.embedded.controllermanager.resources import PODS
from moxwell.embedded.controllermanager.workloads import (
    is_active,
    is_ready,
    new_pod,
    replica_status,
)
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Create, Delete, Write, Writes

Json = dict[str, Any]


def next_move(owner: Json, pods: Sequence[Json]) -> WriteMove:
    """Create missing pods or delete surplus ones."""
    missing = owner["spec"].get("replicas", 1) - sum(map(is_active, pods))
    created = [Create(new_pod(owner, owner["spec"]["template"]), PODS) for _ in range(missing)]
    namespace = owner["metadata"]["namespace"]
    deleted = [Delete(PODS, n, namespace) for n in surplus_pods(pods, max(0, -missing))]
    writes: tuple[Write, ...] = (*created, *deleted)
    return Writes(writes) if writes else Done()


def surplus_pods(pods: Iterable[Json], count: int) -> tuple[str, ...]:
    """The pods to delete: unscheduled ones first, then unready ones, then the youngest."""
    ranked = sorted(
        (p for p in pods if is_active(p)),
        key=lambda p: (
            bool(p["spec"].get("nodeName")),
            is_ready(p),
            _descending(p["metadata"].get("creationTimestamp", "")),
        ),
    )
    return tuple(p["metadata"]["name"] for p in ranked[:count])


def _descending(text: str) -> tuple[int, ...]:
    return tuple(-ord(c) for c in text)


def describe(owner: Json, pods: tuple[Json, ...]) -> Json:
    """The replica counts."""
    counts = replica_status(owner, pods)
    return counts | {"fullyLabeledReplicas": counts["replicas"]}
