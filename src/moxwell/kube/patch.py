"""
Patches: the difference between two objects as a JSON merge patch, and JSON patch operations.

A typed object knows only some fields of the real one, so its difference touches only those: fields
unknown to us survive every write. Lists are replaced whole by a merge patch; where others write
into the same list, send a JSON patch with a test, or apply.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from moxwell.api.kinds import Object

Json = Mapping[str, Any]
Operation = dict[str, Any]


def changes(old: Object | Json, new: Object | Json) -> dict[str, Any]:
    """The merge patch that makes ``old`` into ``new``; empty if nothing differs."""
    return merge_diff(_tree(old), _tree(new))


def merge_diff(old: Json, new: Json) -> dict[str, Any]:
    """The same on plain trees: absent in ``new`` becomes null, which removes."""
    out: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old:
            out[key] = value
        elif isinstance(value, Mapping) and isinstance(old[key], Mapping):
            if inner := merge_diff(old[key], value):
                out[key] = inner
        elif old[key] != value or type(old[key]) is not type(value):
            out[key] = value
    return out


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: what a server makes of a merge patch."""
    if not isinstance(patch, Mapping):
        return patch
    out = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge(out.get(key), value)
    return out


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
