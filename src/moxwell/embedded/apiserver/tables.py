"""Renders ``metav1.Table`` for ``kubectl get``, from JSONPath and computed columns."""

from datetime import datetime
from typing import Any

from moxwell.embedded.apiserver import jsonpath
from moxwell.embedded.apiserver.resources import ServedResource, TableColumn

PARTIAL = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
_DEFAULT_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
NAME = TableColumn(
    "Name",
    "string",
    format="name",
    description=(
        "Name must be unique within a namespace. Is required when creating resources, although some"
        " resources may allow a client to request the generation of an appropriate name"
        " automatically."
        " Name is primarily intended for creation idempotence and configuration definition."
        " Cannot be"
        " updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
    ),
)
AGE = TableColumn("Age", "date", path=".metadata.creationTimestamp")
CREATED = TableColumn(
    "Created At",
    "date",
    path=".metadata.creationTimestamp",
    description=(
        "CreationTimestamp is a timestamp representing the server time when this object was"
        " created. It"
        " is not guaranteed to be set in happens-before order across separate operations."
        " Clients may"
        " not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the"
        " system. Read-only. Null for lists. More info:"
        " https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
    ),
)


def age(since: str, now: str) -> str:
    """Format the age of a timestamp."""
    if not since:
        return "<unknown>"
    passed = datetime.fromisoformat(now) - datetime.fromisoformat(since)
    return duration(int(passed.total_seconds()))


def duration(seconds: int) -> str:
    """Format a duration as ``HumanDuration`` does: two units at most."""
    if seconds < -1:
        return "<invalid>"
    if seconds < 0:
        return "0s"
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    return _long(minutes)


def _long(minutes: int) -> str:
    hours = minutes // 60
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 24 * 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if hours < 24 * 365 * 2:
        return f"{days}d"
    if hours < 24 * 365 * 8:
        return f"{days // 365}y{days % 365}d" if days % 365 else f"{days // 365}y"
    return f"{days // 365}y"


class TablePrinter:
    """Renders the rows of one resource."""

    def __init__(self, resource: ServedResource, include: str, now: str) -> None:
        self._include, self._now = include, now
        self._custom = resource.custom
        self.columns = columns(resource)
        self._cells = [self._cell(column) for column in self.columns]

    def _cell(self, column: TableColumn) -> Any:
        if column is NAME:
            return _name
        if column.cell is not None:
            return column.cell
        read = jsonpath.compile(column.path)
        if column.until:
            end = jsonpath.compile(column.until)
            return lambda obj: self._age(read(obj), *end(obj)[:1])
        if column.age or (column.type == "date" and self._custom):
            return lambda obj: self._age(read(obj))
        if column is CREATED:
            return lambda obj: next(iter(read(obj)), None)
        return lambda obj: typed(read(obj), column.type)

    def _age(self, found: list[Any], until: str = "") -> Any:
        if not found or not isinstance(found[0], str):
            return None if self._custom else "<unknown>"
        try:
            return age(found[0], until or self._now)
        except ValueError:
            return "<invalid>"

    def definitions(self) -> list[dict[str, Any]]:
        return [
            {
                "name": c.name,
                "type": c.type,
                "format": c.format,
                "description": c.description,
                "priority": c.priority,
            }
            for c in self.columns
        ]

    def row(self, obj: dict[str, Any]) -> dict[str, Any]:
        cells = [cell(obj) for cell in self._cells]
        row: dict[str, Any] = {"cells": cells}
        if self._include == "Metadata":
            row["object"] = {**PARTIAL, "metadata": obj["metadata"]}
        elif self._include == "Object":
            row["object"] = obj
        else:
            row["object"] = None
        return row


def _name(obj: dict[str, Any]) -> str:
    """The name; the default StorageClass is marked, as kube-apiserver does."""
    meta = obj["metadata"]
    default = obj.get("kind") == "StorageClass" and _is_default(meta.get("annotations") or {})
    return f"{meta.get('name', '')} (default)" if default else str(meta.get("name", ""))


def _is_default(annotations: dict[str, str]) -> bool:
    return any(annotations.get(name) == "true" for name in _DEFAULT_CLASS)


def columns(resource: ServedResource) -> tuple[TableColumn, ...]:
    """Return the columns of the resource, by default name and age."""
    if resource.custom:
        return (NAME, *(resource.columns or (AGE,)))
    if resource.kind == "Event":
        return resource.columns
    return (NAME, *resource.columns) if resource.columns else (NAME, CREATED)


def typed(found: list[Any], kind: str) -> Any:
    """Convert the values of a JSONPath column to a cell."""
    if not found:
        return None
    if kind == "string":
        texts = [jsonpath.text(value) for value in found]
        return texts[0] if len(texts) == 1 else ",".join(texts)
    value = found[0]
    if kind == "integer" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value)
    if kind == "number" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    if kind == "boolean" and isinstance(value, bool):
        return value
    return None
