"""
JSON merge patches from the difference of two objects, and JSON patch operations.

A typed object has only some fields of the real one; its difference touches only those, so unknown
fields survive. A merge patch replaces whole lists; where others write the same list, use a JSON
patch with a test operation, or apply.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from moxwell.api import json_merge
from moxwell.api.kinds import Object

Json = Mapping[str, Any]
Operation = dict[str, Any]


def changes(old: Object | Json, new: Object | Json) -> dict[str, Any]:
    """The merge patch from ``old`` to ``new``; empty if they are equal."""
    return json_merge.merge_diff(_tree(old), _tree(new))


def pointer(*parts: str | int) -> str:
    """A JSON pointer, with ``~`` and ``/`` escaped."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> Operation:
    return {"op": "remove", "path": path}


def put(path: str, value: Any) -> Operation:
    return {"op": "replace", "path": path, "value": value}


def expect(path: str, value: Any) -> Operation:
    """A test operation: the patch fails unless the value is still this."""
    return {"op": "test", "path": path, "value": value}


def encode(patch: Json | Sequence[Operation]) -> bytes:
    return msgspec.json.encode(patch)


def _tree(obj: Object | Json) -> Json:
    if isinstance(obj, Object):
        tree: Json = msgspec.to_builtins(obj)
        return tree
    return obj
