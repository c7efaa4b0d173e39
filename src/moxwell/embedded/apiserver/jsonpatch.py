"""
JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386).

A JSON patch may modify the document in place; callers pass a copy. A merge patch modifies nothing:
its result shares the values that the patch does not name.
"""

import copy
import re
from typing import Any

import msgspec

from moxwell.embedded.apiserver import limits
from moxwell.errors import Invalid

_INDEX = re.compile(r"-?[0-9]{1,18}")


class PatchFailed(Invalid):
    """The patch does not apply to the document."""


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """Apply a merge patch: objects merge, null removes, other values replace."""
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = apply_merge_patch(made.get(key), value)
    return made


def apply_json_patch(document: Any, operations: Any) -> Any:
    """Apply all operations of a JSON patch, or none."""
    if not isinstance(operations, list):
        raise PatchFailed("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    if len(operations) > limits.MAX_PATCH_OPERATIONS:
        raise limits.too_large(
            "The allowed maximum operations in a JSON patch is"
            f" {limits.MAX_PATCH_OPERATIONS}, got {len(operations)}"
        )
    copied = 0
    for operation in operations:
        if isinstance(operation, dict) and operation.get("op") == "copy":
            copied += _copied_size(document, operation)
            if copied > limits.MAX_COPIED:
                raise PatchFailed(
                    "Unable to complete the copy, the accumulated size increase of copy is"
                    f" {copied}, exceeding the limit {limits.MAX_COPIED}"
                )
        document = _run(document, operation)
    return document


def _copied_size(document: Any, operation: Any) -> int:
    source = _get(document, _pointer(operation.get("from")), "copy operation does not apply")
    return len(msgspec.json.encode(source))


def _run(document: Any, operation: Any) -> Any:
    if not isinstance(operation, dict) or "op" not in operation:
        raise PatchFailed("Unexpected kind: unknown")
    op, path = operation["op"], _pointer(operation.get("path"))
    if op in ("add", "replace", "test") and "value" not in operation and op != "test":
        raise PatchFailed(f"{op} operation does not have a value")
    match op:
        case "add":
            return _add(document, path, operation["value"])
        case "remove":
            return _remove(document, path)
        case "replace":
            return operation["value"] if not path else _set(document, path, operation["value"])
        case "move" | "copy":
            source = _pointer(operation.get("from"))
            value = _get(document, source, f"{op} operation does not apply")
            value = copy.deepcopy(value) if op == "copy" else value
            if op == "move" and path[: len(source)] == source and len(path) > len(source):
                raise PatchFailed("move operation does not apply: the target is in the source")
            document = _remove(document, source) if op == "move" else document
            return _add(document, path, value)
        case "test":
            return _test(document, path, operation.get("value"))
    raise PatchFailed(f"Unexpected kind: {op}")


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise PatchFailed("Unable to decode the path")
    if text.count("/") > limits.MAX_DEPTH:
        raise limits.TooDeep
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _text(path: list[str]) -> str:
    return "/" + "/".join(path)


def _get(document: Any, path: list[str], problem: str) -> Any:
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list) and _index(part, len(document)) is not None:
            document = document[_index(part, len(document)) or 0]
        else:
            raise PatchFailed(f"{problem}: missing value")
    return document


def _index(part: str, size: int) -> int | None:
    if not _INDEX.fullmatch(part):
        return None
    at = int(part)
    at = at + size if at < 0 else at
    return at if 0 <= at < size else None


def _parent(document: Any, path: list[str], op: str) -> Any:
    return _get(
        document, path[:-1], f"{op} operation does not apply: doc is missing path: {_text(path)}"
    )


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _parent(document, path, "add"), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list) and (last == "-" or _INDEX.fullmatch(last)):
        at = len(parent) if last == "-" else int(last)
        if not 0 <= at <= len(parent):
            raise PatchFailed(f"Unable to access invalid index: {at}: invalid index referenced")
        parent.insert(at, value)
    else:
        raise PatchFailed(
            f"add operation does not apply: doc is missing path: {_text(path)}: missing value"
        )
    return document


def _set(document: Any, path: list[str], value: Any) -> Any:
    parent, last = _parent(document, path, "replace"), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list) and (at := _index(last, len(parent))) is not None:
        parent[at] = value
    else:
        raise PatchFailed(f"replace operation does not apply: doc is missing key: {_text(path)}")
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        raise PatchFailed("remove operation does not apply: the whole document")
    parent, last = _parent(document, path, "remove"), path[-1]
    if isinstance(parent, dict) and last in parent:
        del parent[last]
    elif isinstance(parent, list) and (at := _index(last, len(parent))) is not None:
        del parent[at]
    else:
        problem = (
            "Unable to remove nonexistent key"
            if isinstance(parent, dict)
            else "Unable to access invalid index"
        )
        raise PatchFailed(
            f"remove operation does not apply: doc is missing path: {_text(path)}: {problem}:"
            f" {last}: missing value"
        )
    return document


def _test(document: Any, path: list[str], value: Any) -> Any:
    try:
        found = _get(document, path, "")
    except PatchFailed:
        found = None
        if value is not None:
            raise PatchFailed(f"testing value {_text(path)} failed: test failed") from None
    if found != value:
        raise PatchFailed(f"testing value {_text(path)} failed: test failed")
    return document
