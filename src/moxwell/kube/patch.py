"""
Patches: the difference between two objects as a JSON merge patch, and JSON patch operations.

A typed object knows only some fields of the real one, so its difference touches only those: fields
unknown to us survive every write. Lists are replaced whole by a merge patch; where others write
into the same list, send a JSON patch with a test, or apply.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from moxwell.api import json_merge
from moxwell.api.kinds import Object

Json = Mapping[str, Any]
Operation = dict[str, Any]


def changes(old: Object | Json, new: Object | Json) -> dict[str, Any]:
    """The merge patch that makes ``old`` into ``new``; empty if nothing differs."""
    return json_merge.merge_diff(_tree(old), _tree(new))


def pointer(*parts: str | int) -> str:
    """A JSON pointer, with ``~`` and ``/`` inside the parts escaped."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> Operation:
    return {"op": "remove", "path": path}


def put(path: str, value: Any) -> Operation:
    return {"op": "replace", "path": path, "value": value}


def expect(path: str, value: Any) -> Operation:
    """The patch is refused unless this is still so."""
    return {"op": "test", "path": path, "value": value}


def encode(patch: Json | Sequence[Operation]) -> bytes:
    return msgspec.json.encode(patch)


def _tree(obj: Object | Json) -> Json:
    if isinstance(obj, Object):
        tree: Json = msgspec.to_builtins(obj)
        return tree
    return obj
