"""
The pure parts of :mod:`moxwell.testing.kube`: paths, patches and the wording of a refusal.

Written from the RFCs (6902 without copy and move, 7396) and not shared with the embedded API: two
readings of one text that agree are worth more than one.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

Json = dict[str, Any]


class Refused(Exception):
    """An answer that is a Status of failure."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


@dataclass(frozen=True, slots=True)
class Place:
    """What a path names."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_path(path: str) -> Place:
    """What a path names; namespaces themselves are the one irregular resource."""
    parts = path.strip("/").split("/")
    if parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    else:
        group, version, rest = parts[1], parts[2], parts[3:]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    return Place(group, version, rest[0], namespace, *rest[1:3])


def merge(old: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    out = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        else:
            out[name] = merge(out.get(name), value)
    return out


def json_patch(old: Json, operations: list[Json]) -> Json:
    """RFC 6902, without copy and move."""
    out: Json = msgspec.json.decode(msgspec.json.encode(old))
    for operation in operations:
        *way, last = (
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        )
        spot: Any = out
        try:
            for part in way:
                spot = spot[int(part)] if isinstance(spot, list) else spot[part]
            _operate(spot, last, operation)
        except (KeyError, IndexError, ValueError) as error:
            raise Refused(422, "Invalid", f"cannot apply {operation['path']}") from error
    return out


def _operate(spot: Any, last: str, operation: Json) -> None:
    name: Any = last
    if isinstance(spot, list):
        name = len(spot) if last == "-" else int(last)
    match operation["op"]:
        case "test":
            if spot[name] != operation["value"]:
                raise Refused(422, "Invalid", f"test of {operation['path']} failed")
        case "remove":
            del spot[name]
        case "add" if isinstance(spot, list):
            spot.insert(name, operation["value"])
        case _:
            spot[name] = operation["value"]


def status(code: int, reason: str, message: str, *, success: bool = False) -> Json:
    """A ``Status`` as the API words it."""
    word = "Success" if success else "Failure"
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": word}
    return head | {"message": message, "reason": reason, "code": code}
