"""
Compiles structural schemas to pruning and defaulting functions.

``pruner`` drops and reports unknown fields, and drops disallowed nulls silently, as kube-apiserver
does; ``defaulter`` sets defaults. Both modify the value. A schema with nothing to prune or default
compiles to None.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

Schema = Mapping[str, Any]
Prune = Callable[[Any, str, list[str] | None], None]
Default = Callable[[Any], None]
_META = frozenset(
    [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "labels",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ]
)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def pruner(schema: Schema, *, root: bool = False) -> Prune | None:
    """Compile the pruning function of a schema; None if nothing is pruned."""
    if schema.get("type") == "array" or "items" in schema:
        return _list_pruner(pruner(schema.get("items") or {}))
    embedded = schema.get("x-kubernetes-embedded-resource")
    free = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    if free and not schema.get("properties") and not embedded:
        return None
    properties = schema.get("properties") or {}
    rest = schema.get("additionalProperties")
    free = free or rest is True
    if isinstance(rest, Mapping):
        return _map_pruner(pruner(rest), nulls=bool(rest.get("nullable")))
    if schema.get("type") != "object" and not properties:
        return None if schema.get("x-kubernetes-int-or-string") else _leaf
    known = {key: pruner(found) for key, found in properties.items()}
    if root or embedded:
        meta = None if root else _object_pruner(dict.fromkeys(_META), free=False)
        known |= {"apiVersion": None, "kind": None, "metadata": meta}
    if free and not any(known.values()):
        return None
    solid = frozenset(key for key, found in properties.items() if not found.get("nullable"))
    return _object_pruner(known, free, solid)


def _leaf(value: Any, path: str, unknown: list[str] | None) -> None:
    """Remove the fields of an object found in place of a scalar."""
    if value.__class__ is dict:
        if unknown is not None:
            unknown += [_join(path, key) for key in value]
        value.clear()


def _list_pruner(inner: Prune | None) -> Prune | None:
    plain = inner is _leaf

    def prune(value: Any, path: str, unknown: list[str] | None) -> None:
        if value.__class__ is not list:
            _leaf(value, path, unknown)
        elif inner is not None:
            for at, item in enumerate(value):
                if not plain or item.__class__ is dict:
                    inner(item, f"{path}[{at}]", unknown)

    return prune


def _map_pruner(inner: Prune | None, *, nulls: bool) -> Prune | None:
    if inner is None:
        return None

    def prune(value: Any, path: str, unknown: list[str] | None) -> None:
        if isinstance(value, dict):
            if not nulls and None in value.values():
                for key in [key for key, item in value.items() if item is None]:
                    del value[key]
            for key, item in value.items():
                inner(item, _join(path, key), unknown)

    return prune


def _object_pruner(
    known: Mapping[str, Prune | None], free: bool, solid: frozenset[str] = frozenset()
) -> Prune:
    leaves = frozenset(key for key, inner in known.items() if inner is _leaf)

    def prune(value: Any, path: str, unknown: list[str] | None) -> None:
        if not isinstance(value, dict):
            return
        gone = []
        if None in value.values():
            for key in [key for key, item in value.items() if item is None and key in solid]:
                del value[key]
        for key, item in value.items():
            if key not in known:
                if not free:
                    gone.append(key)
            elif key in leaves:
                if item.__class__ is dict:
                    _leaf(item, _join(path, key), unknown)
            elif (inner := known[key]) is not None:
                inner(item, _join(path, key), unknown)
        for key in gone:
            del value[key]
            if unknown is not None:
                unknown.append(_join(path, key))

    return prune


def defaulter(schema: Schema) -> Default | None:
    """Compile the defaulting function of a schema; None if there are no defaults."""
    if "items" in schema:
        return _each(defaulter(schema["items"]), list)
    rest = schema.get("additionalProperties")
    if isinstance(rest, Mapping):
        return _each(defaulter(rest), dict)
    plan = []
    for key, found in (schema.get("properties") or {}).items():
        inner, given = defaulter(found), "default" in found
        if inner is not None or given:
            plan.append((key, inner, given, found.get("default"), bool(found.get("nullable"))))
    return _object_defaulter(plan) if plan else None


def _each(inner: Default | None, kind: type[list[Any]] | type[dict[str, Any]]) -> Default | None:
    if inner is None:
        return None

    def default(value: Any) -> None:
        if isinstance(value, kind):
            for item in value.values() if isinstance(value, dict) else value:
                inner(item)

    return default


def _object_defaulter(plan: list[tuple[str, Default | None, bool, Any, bool]]) -> Default:
    def default(value: Any) -> None:
        if not isinstance(value, dict):
            return
        for key, inner, given, what, nullable in plan:
            missing = key not in value or (value[key] is None and not nullable)
            if missing and given:
                value[key] = copy.deepcopy(what)
            if inner is not None and key in value:
                inner(value[key])

    return default
