"""
Predicts what a server-side apply changes, from an object and its managed fields. Pure.

The rules are those of the API server: fields of the applied configuration are set, fields that this
manager applied before and no longer names are removed unless another manager owns them. Whether a
list merges by key is read from the managed fields; a list that nobody owns by key is atomic. What
the API server would default inside an item of an atomic list must be applied explicitly, because it
cannot be distinguished from a change.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Json = dict[str, Any]
FieldSet = Mapping[str, Any]  # the form of fieldsV1: "f:name", "k:{...}" and "v:..." to field sets
_IDENTITY = {"": ("apiVersion", "kind"), "metadata": ("name", "namespace")}  # owned by nobody
_REMOVED = object()
_SERVER_FIELDS = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")
_ABSENT = (None, "")


def predict_apply(found: Json, applied: Json, manager: str) -> Json:
    """The object as it is after ``manager`` applies ``applied`` with force."""
    mine, others = _owned_by(found, manager)
    merged: Json = _merge_map(found, applied, mine, others)
    return merged


def needs_apply(found: Json | None, applied: Json, manager: str) -> bool:
    """Whether applying would create or change the object, or the ownership of its fields."""
    if found is None:
        return True
    changed = differences(found, predict_apply(found, applied, manager))
    return bool(changed) or not is_owner(found, applied, manager)


def is_owner(found: Json, applied: Json, manager: str) -> bool:
    """Whether ``manager`` owns every field of ``applied`` already."""
    mine, _ = _owned_by(found, manager)
    return _covers(mine, applied, "")


def owns_field(found: Json, manager: str, *path: str) -> bool:
    """Whether ``manager`` has applied the field at a path."""
    fields, _ = _owned_by(found, manager)
    for name in path:
        if f"f:{name}" not in fields:
            return False
        fields = fields[f"f:{name}"]
    return True


def _owned_by(found: Json, manager: str) -> tuple[FieldSet, FieldSet]:
    """What the manager has applied, and what everybody else owns."""
    mine: FieldSet = {}
    others: FieldSet = {}
    for entry in found["metadata"].get("managedFields") or ():
        fields = entry.get("fieldsV1") or {}
        if entry.get("manager") == manager and entry.get("operation") == "Apply":
            mine = _union(mine, fields)
        else:
            others = _union(others, fields)
    return mine, others


def _union(one: FieldSet, two: FieldSet) -> FieldSet:
    joined = dict(one)
    for key, fields in two.items():
        joined[key] = _union(joined[key], fields) if key in joined else fields
    return joined


def _covers(fields: FieldSet, value: Mapping[str, Any], at: str) -> bool:
    for name, inner in value.items():
        if name in _IDENTITY.get(at, ()):
            continue
        owned = fields.get(f"f:{name}")
        if owned is None:
            if at == "" and name == "metadata" and set(inner) <= set(_IDENTITY[name]):
                continue  # a name alone is owned by nobody
            return False
        if isinstance(inner, Mapping) and owned and not _covers(owned, inner, at or name):
            return False
    return True


def _merge(found: Any, applied: Any, mine: FieldSet, others: FieldSet) -> Any:
    if isinstance(found, Mapping) and isinstance(applied, Mapping):
        return _merge_map(found, applied, mine, others)
    if isinstance(found, list) and isinstance(applied, list):
        return _merge_list(found, applied, mine, others)
    return applied


def _merge_map(
    found: Mapping[str, Any], applied: Mapping[str, Any], mine: FieldSet, others: FieldSet
) -> Json:
    merged: Json = {}
    for name in (*found, *(n for n in applied if n not in found)):
        field = f"f:{name}"
        if name not in found:
            merged[name] = applied[name]
        elif name in applied:
            merged[name] = _merge(
                found[name], applied[name], mine.get(field, {}), others.get(field, {})
            )
        elif (kept := _pruned(found[name], mine.get(field), others.get(field))) is not _REMOVED:
            merged[name] = kept
    return merged


def _merge_list(
    found: list[Any], applied: list[Any], mine: FieldSet, others: FieldSet
) -> list[Any]:
    """By key where the managed fields show one, else the applied list replaces the other."""
    identity = _identity({**others, **mine})
    if identity is None:
        return applied
    existing = {identity(item): item for item in found}
    return [
        _merge_item(existing.get(key), item, mine, others)
        for key, item in _interleaved(found, applied, identity)
        if item is not None or _is_kept(existing[key], mine, others)
    ]


def _interleaved(
    found: list[Any], applied: list[Any], identity: Callable[[Any], str]
) -> Iterator[tuple[str, Any]]:
    """
    Keys of both lists with the applied item, or None for an item that is not applied.

    Applied items keep their order; the others keep their position in the existing list.
    """
    rest = [(identity(item), item) for item in applied]
    wanted, existing = {key for key, _ in rest}, {identity(item) for item in found}
    for key in map(identity, found):
        shared = next((k for k, _ in rest if k in existing), None)
        if key not in wanted:
            yield key, None
        while shared == key and rest:
            yield rest[0]
            if rest.pop(0)[0] == key:
                break
    yield from rest


def _merge_item(found: Any, applied: Any, mine: FieldSet, others: FieldSet) -> Any:
    if applied is None or found is None:
        return found if applied is None else applied
    return _merge(found, applied, _fields_of(found, mine) or {}, _fields_of(found, others) or {})


def _is_kept(item: Any, mine: FieldSet, others: FieldSet) -> bool:
    """Whether an item that is not applied stays: it was not mine, or another owns it too."""
    return _fields_of(item, mine) is None or _fields_of(item, others) is not None


def _identity(fields: FieldSet) -> Callable[[Any], str] | None:
    """The keys that identify items of a list; None if the list is atomic."""
    for key in fields:
        if key.startswith("k:"):
            names = sorted(json.loads(key[2:]))
            return lambda item: json.dumps([item.get(name) for name in names])
        if key.startswith("v:"):
            return lambda item: json.dumps(item, sort_keys=True)
    return None


def _fields_of(item: Any, fields: FieldSet) -> FieldSet | None:
    """The field set of one item of a list."""
    for key, inner in fields.items():
        if key.startswith("v:") and json.loads(key[2:]) == item:
            return dict(inner)
        if key.startswith("k:"):
            named = json.loads(key[2:])
            if all(item.get(name) == value for name, value in named.items()):
                return dict(inner)
    return None


def _pruned(value: Any, mine: FieldSet | None, others: FieldSet | None) -> Any:
    """A value without what only this manager owned; ``_REMOVED`` if nothing is left."""
    if mine is None:
        return value
    if isinstance(value, Mapping) and any(key.startswith("f:") for key in mine):
        kept = dict(_pruned_items(value, mine, others or {}))
        return kept if kept or others is not None else _REMOVED
    if isinstance(value, list) and _identity(mine) is not None:
        rest = [item for item in value if _is_kept(item, mine, others or {})]
        return rest if rest or others is not None else _REMOVED
    return value if others is not None else _REMOVED


def _pruned_items(
    value: Mapping[str, Any], mine: FieldSet, others: FieldSet
) -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        kept = _pruned(inner, mine.get(f"f:{name}"), others.get(f"f:{name}"))
        if kept is not _REMOVED:
            yield name, kept


def differences(before: Any, after: Any, at: str = "") -> tuple[str, ...]:
    """The paths at which two objects differ, without status and what the API server sets."""
    if not at:
        before, after = _comparable(before), _comparable(after)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        found: list[str] = []
        for key in sorted(before.keys() | after.keys()):
            path = f"{at}.{key}" if at else key
            found += differences(before.get(key), after.get(key), path)
        return tuple(found)
    absent = before in _ABSENT and after in _ABSENT
    return () if absent or before == after else (at,)


def _comparable(obj: Json) -> Json:
    meta = {k: v for k, v in (obj.get("metadata") or {}).items() if k not in _SERVER_FIELDS}
    return {k: v for k, v in obj.items() if k != "status"} | {"metadata": meta}
