"""Checks an applied configuration against its schema: declared fields and value types."""

from typing import Any

from moxwell.embedded.apiserver.merge_schema import LIST, MAP, MergeSchema


def problems(value: Any, schema: MergeSchema, path: str = "") -> list[str]:
    """List the mismatches with the messages of structured-merge-diff."""
    schema = schema.of(value)
    if value is None:
        return []
    if schema.kind == MAP:
        if not isinstance(value, dict):
            return [f"{path}: expected map, got {_shown(value)}"]
        return [found for key, item in value.items() for found in _member(key, item, schema, path)]
    if schema.kind == LIST:
        if not isinstance(value, list):
            return [f"{path}: expected list, got {_shown(value)}"]
        return [
            p for at, i in enumerate(value) for p in problems(i, schema.element(), f"{path}[{at}]")
        ]
    return []


def _member(key: str, item: Any, schema: MergeSchema, path: str) -> list[str]:
    if not schema.knows(key):
        return [f"{path}.{key}: field not declared in schema"]
    return problems(item, schema.field(key), f"{path}.{key}")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        value = "true" if value else "false"
    return f"&value.valueUnstructured{{Value:{value}}}"
