"""Decodes and encodes ``managedFields`` as a table from field manager to owned fields."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from moxwell.embedded.apiserver.apply import field_sets
from moxwell.embedded.apiserver.apply.field_sets import Node

APPLY, UPDATE = "Apply", "Update"
MAX_UPDATERS = 10


@dataclass(frozen=True, slots=True, order=True)
class ManagerKey:
    """The identity of a field manager: name, operation, subresource and, for updates, version."""

    name: str
    operation: str
    subresource: str = ""
    version: str = ""

    def shown(self, version: str) -> str:
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {version}" if self.operation == UPDATE else text


@dataclass(frozen=True, slots=True)
class OwnedFields:
    """The fields a manager owns, in the version it wrote them."""

    fields: Node
    version: str
    time: str = ""


Managers = dict[ManagerKey, OwnedFields]


def applier(name: str, subresource: str) -> ManagerKey:
    return ManagerKey(name, APPLY, subresource)


def updater(name: str, subresource: str, version: str) -> ManagerKey:
    return ManagerKey(name, UPDATE, subresource, version)


def read(entries: list[Mapping[str, Any]] | None) -> Managers:
    """Decode managedFields; entries of other formats are dropped."""
    found: Managers = {}
    for entry in entries or ():
        if entry.get("fieldsType") != "FieldsV1" or entry.get("operation") not in (APPLY, UPDATE):
            continue
        version = entry.get("apiVersion", "")
        who = ManagerKey(
            entry.get("manager", ""),
            entry["operation"],
            entry.get("subresource", ""),
            "" if entry["operation"] == APPLY else version,
        )
        fields, time = entry.get("fieldsV1") or {}, entry.get("time", "")
        if who in found:
            fields = field_sets.union(found[who].fields, fields)
        found[who] = OwnedFields(fields, version, time)
    return found


def write(managers: Managers) -> list[dict[str, Any]]:
    """Encode managedFields in the order of kube-apiserver."""
    listed = sorted(
        managers.items(),
        key=lambda pair: (pair[0].operation, pair[1].time, pair[0].name, pair[1].version),
    )
    return [_entry(who, what) for who, what in listed]


def _entry(who: ManagerKey, what: OwnedFields) -> dict[str, Any]:
    made: dict[str, Any] = {
        "manager": who.name,
        "operation": who.operation,
        "apiVersion": what.version,
    }
    if what.time:
        made["time"] = what.time
    made |= {"fieldsType": "FieldsV1", "fieldsV1": what.fields}
    return {**made, "subresource": who.subresource} if who.subresource else made


@dataclass(slots=True)
class Capped:
    """Limits the number of update managers; the oldest are merged into one entry."""

    managers: Managers = field(default_factory=dict)

    def result(self) -> Managers:
        updaters = [who for who in self.managers if who.operation == UPDATE]
        if len(updaters) <= MAX_UPDATERS:
            return self.managers
        updaters.sort(key=lambda who: (self.managers[who].time, who))
        kept = dict(self.managers)
        for who in updaters[: len(updaters) - MAX_UPDATERS + 1]:
            old = kept.pop(who)
            bucket = ManagerKey("ancient-changes", UPDATE, "", old.version)
            before = kept.get(bucket, replace(old, fields={}))
            time = max(before.time, old.time)
            kept[bucket] = OwnedFields(
                field_sets.union(before.fields, old.fields), old.version, time
            )
        return kept
