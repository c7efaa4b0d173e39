"""
Pure functions of :mod:`moxwell.testing.kube`: path parsing, patches, Status bodies.

Patches follow the RFCs (6902 without copy and move, 7386) and share no code with the embedded API
server, so that the two implementations check each other.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

Json = dict[str, Any]


class FakeApiError(Exception):
    """A failure Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """The resource that a path names."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_path(path: str) -> ResourcePath:
    """Parse a path; namespaces are the one irregular resource."""
    parts = path.strip("/").split("/")
    if parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    else:
        group, version, rest = parts[1], parts[2], parts[3:]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    return ResourcePath(group, version, rest[0], namespace, *rest[1:3])


def apply_merge_patch(old: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    out = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        else:
            out[name] = apply_merge_patch(out.get(name), value)
    return out


def apply_json_patch(old: Json, operations: list[Json]) -> Json:
    """Apply a JSON patch (RFC 6902) without copy and move."""
    out: Json = msgspec.json.decode(msgspec.json.encode(old))
    for operation in operations:
        *path_parts, last = (
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        )
        target_value: Any = out
        try:
            for part in path_parts:
                target_value = (
                    target_value[int(part)]
                    if isinstance(target_value, list)
                    else target_value[part]
                )
            _operate(target_value, last, operation)
        except (KeyError, IndexError, ValueError) as error:
            raise FakeApiError(422, "Invalid", f"cannot apply {operation['path']}") from error
    return out


def _operate(target_value: Any, last: str, operation: Json) -> None:
    name: Any = last
    if isinstance(target_value, list):
        name = len(target_value) if last == "-" else int(last)
    match operation["op"]:
        case "test":
            if target_value[name] != operation["value"]:
                raise FakeApiError(422, "Invalid", f"test of {operation['path']} failed")
        case "remove":
            del target_value[name]
        case "add" if isinstance(target_value, list):
            target_value.insert(name, operation["value"])
        case _:
            target_value[name] = operation["value"]


def status(code: int, reason: str, message: str, *, success: bool = False) -> Json:
    """Build a ``Status``."""
    status_word = "Success" if success else "Failure"
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": status_word}
    return head | {"message": message, "reason": reason, "code": code}
