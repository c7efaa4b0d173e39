"""Converts Events between ``v1`` (the stored version) and ``events.k8s.io/v1``."""

from typing import Any

_TO_NEW = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_TO_OLD = {new: old for old, new in _TO_NEW.items()}


def convert(obj: dict[str, Any], api_version: str) -> dict[str, Any]:
    """Convert an event to another API version."""
    names = _TO_NEW if api_version.startswith("events.k8s.io/") else _TO_OLD
    moved = {names.get(key, key): value for key, value in obj.items()}
    if api_version != "v1":
        for key in ("reportingController", "reportingInstance"):
            if not moved.get(key):
                moved.pop(key, None)
    if api_version == "v1":
        moved.setdefault("involvedObject", {})
        moved.setdefault("source", {})
        moved.setdefault("firstTimestamp", None)
        moved.setdefault("lastTimestamp", None)
    return {**moved, "apiVersion": api_version}
