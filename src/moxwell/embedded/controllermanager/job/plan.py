"""The next move and the status of a Job. Pure."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from moxwell.embedded.controllermanager.resources import PODS
from moxwell.embedded.controllermanager.workloads import is_active, is_ready, new_pod
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Create, Writes

Json = dict[str, Any]


class JobReason(StrEnum):
    """Reasons of the conditions of a Job."""

    COMPLETED = "CompletionsReached"


def next_move(owner: Json, pods: Sequence[Json]) -> WriteMove:
    """Create pods up to the parallelism, until enough have succeeded."""
    spec = owner["spec"]
    remaining = spec.get("completions", 1) - succeeded(pods)
    count = min(spec.get("parallelism", 1), remaining) - sum(map(is_active, pods))
    writes = tuple(Create(new_pod(owner, spec["template"]), PODS) for _ in range(count))
    return Writes(writes) if writes else Done()


def succeeded(pods: Sequence[Json]) -> int:
    return sum((p.get("status") or {}).get("phase") == "Succeeded" for p in pods)


def describe(owner: Json, pods: Sequence[Json]) -> Json:
    """The counts, and ``Complete`` when enough pods have succeeded."""
    status: Json = {
        "active": sum(map(is_active, pods)),
        "succeeded": succeeded(pods),
        "ready": sum(map(is_ready, pods)),
    }
    if created := owner["metadata"].get("creationTimestamp"):
        status["startTime"] = created
    if status["succeeded"] >= owner["spec"].get("completions", 1):
        reason = str(JobReason.COMPLETED)
        status["conditions"] = [{"type": "Complete", "status": "True", "reason": reason}]
        if ended := _last_end(pods):
            status["completionTime"] = ended
    return status


def _last_end(pods: Sequence[Json]) -> str:
    """When the last container of the pods ended."""
    states = [
        container.get("state") or {}
        for pod in pods
        for container in (pod.get("status") or {}).get("containerStatuses") or ()
    ]
    return max(
        (s["terminated"].get("finishedAt", "") for s in states if "terminated" in s), default=""
    )
