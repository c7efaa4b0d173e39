"""The status of a PodDisruptionBudget, which the eviction endpoint reads. Pure."""

from collections.abc import Sequence
from typing import Any

from moxwell.embedded.controllermanager.workloads import is_ready
from moxwell.scheduling.rollout import int_or_percent

Json = dict[str, Any]


def describe(budget: Json, pods: Sequence[Json]) -> Json:
    """How many of the active, selected pods may be evicted now."""
    spec, expected = budget["spec"], len(pods)
    healthy = sum(is_ready(p) for p in pods)
    if "minAvailable" in spec:
        desired = int_or_percent(spec["minAvailable"], expected, up=True)
    else:
        desired = expected - int_or_percent(spec.get("maxUnavailable", 0), expected, up=True)
    return {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "currentHealthy": healthy,
        "desiredHealthy": max(0, desired),
        "expectedPods": expected,
        "disruptionsAllowed": max(0, healthy - max(0, desired)),
    }
