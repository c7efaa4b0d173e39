"""Field selectors of built-in kinds: supported fields and their text values."""

from collections.abc import Mapping
from typing import Any

_EVENT = tuple(
    f"involvedObject.{n}"
    for n in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
)

SELECTABLE: Mapping[str, frozenset[str]] = {
    "Event": frozenset([*_EVENT, "reason", "reportingComponent", "source", "type"]),
    "Pod": frozenset(
        [
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ]
    ),
    "Node": frozenset(["spec.unschedulable"]),
    "Secret": frozenset(["type"]),
    "Namespace": frozenset(["status.phase", "name"]),
    "Service": frozenset(["spec.clusterIP", "spec.type"]),
    "ReplicaSet": frozenset(["status.replicas"]),
    "ReplicationController": frozenset(["status.replicas"]),
    "Job": frozenset(["status.successful"]),
    "PersistentVolume": frozenset(["name"]),
    "PersistentVolumeClaim": frozenset(["name"]),
    "StorageClass": frozenset(),
}
_BOOLEANS = frozenset(["spec.unschedulable", "spec.hostNetwork"])
_COUNTS = frozenset(["status.replicas", "status.successful"])


def read(obj: Mapping[str, Any], path: str) -> str:
    """Return the field's text; an absent field is empty, ``false`` or ``0`` by its type."""
    if path == "name":
        path = "metadata.name"
    if path == "source":
        path = "source.component"
    found: Any = obj
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return as_text(found, path)


def as_text(value: Any, path: str) -> str:
    if value is None or value == "":
        return "false" if path in _BOOLEANS else "0" if path in _COUNTS else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
