"""
Dotted paths into JSON values: ``metadata.uid``, ``items[0].spec``, ``resources[name=pods]``.

A missing value is :data:`ABSENT`. A dot in a key is written ``\\\\.``.
"""

import re
from typing import Any

ABSENT = "<absent>"
_SPLIT = re.compile(r"(?<!\\)\.(?![^\[]*\])")
_SEGMENT = re.compile(r"^([^\[]*)((?:\[[^\]]*\])*)$")


def _segments(path: str) -> list[str]:
    found: list[str] = []
    for segment in _SPLIT.split(path):
        match = _SEGMENT.match(segment)
        if match is None:
            raise ValueError(path)
        if match[1]:
            found.append(match[1].replace("\\.", "."))
        found.extend(re.findall(r"\[[^\]]*\]", match[2]))
    return found


def _step(value: Any, segment: str) -> Any:
    if segment.startswith("["):
        return _choose(value, segment[1:-1])
    return value.get(segment, ABSENT) if isinstance(value, dict) else ABSENT


def _choose(value: Any, choice: str) -> Any:
    if not isinstance(value, list):
        return ABSENT
    if "=" in choice:
        key, wanted = choice.split("=", 1)
        return next((v for v in value if str(v.get(key)) == wanted), ABSENT)
    return value[int(choice)] if int(choice) < len(value) else ABSENT


def find(value: Any, path: str) -> Any:
    """Return the value at ``path``."""
    for segment in _segments(path):
        value = _step(value, segment)
        if value is ABSENT:
            return ABSENT
    return value


def without(value: Any, path: str) -> Any:
    """Return a copy without the value at ``path``; ``*`` is every key or item."""
    return _without(value, _segments(path.replace("[*]", ".*")))


def _without(value: Any, segments: list[str]) -> Any:
    head, rest = segments[0], segments[1:]
    if isinstance(value, list):
        inner = rest if head == "*" else segments
        return [_without(v, inner) if inner else v for v in value]
    if not isinstance(value, dict):
        return value
    if not rest:
        return {k: v for k, v in value.items() if k != head and head != "*"}
    return {k: _without(v, rest) if head in ("*", k) else v for k, v in value.items()}
