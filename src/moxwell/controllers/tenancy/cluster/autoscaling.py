"""
The replica count of a node group that an autoscaler sizes. Pure.

The count is the autoscaler's field: it is set once, at creation or when a fixed group becomes
autoscaled, under a field manager of its own, and left out of every later apply.
"""

from typing import Any

from moxwell.controllers.tenancy.apply_prediction import owns_field

Json = dict[str, Any]
MANAGER = "moxwell-tenancy"  # the field manager of everything else
INITIAL_REPLICAS_MANAGER = "moxwell-tenancy-first"


def with_initial_replicas(obj: Json) -> Json:
    """A new autoscaled MachineDeployment starts with its minimum; others are unchanged."""
    bounds = _bounds(obj)
    if obj["kind"] != "MachineDeployment" or bounds is None:
        return obj
    return {**obj, "spec": {**obj["spec"], "replicas": bounds[0]}}


def _bounds(obj: Json) -> tuple[int, int] | None:
    annotations = obj["metadata"].get("annotations") or {}
    found = {
        key.rpartition("node-group-")[2]: value
        for key, value in annotations.items()
        if "node-group-" in key
    }
    if "min-size" not in found:
        return None
    return int(found["min-size"]), int(found.get("max-size", found["min-size"]))


def replicas_to_hand_over(obj: Json, found: Json) -> int | None:
    """
    The current count within the bounds, while ``MANAGER`` still owns the field; else None.

    An apply without the field would remove it, so another field manager must own it first.
    """
    bounds, count = _bounds(obj), (found.get("spec") or {}).get("replicas")
    if obj["kind"] != "MachineDeployment" or bounds is None or count is None:
        return None
    if not owns_field(found, MANAGER, "spec", "replicas"):
        return None
    return min(max(int(count), bounds[0]), bounds[1])


def replicas_only(obj: Json, count: int) -> Json:
    """A MachineDeployment with only its replica count."""
    meta = {key: obj["metadata"][key] for key in ("name", "namespace")}
    head = {key: obj[key] for key in ("apiVersion", "kind")}
    return {**head, "metadata": meta, "spec": {"replicas": count}}
