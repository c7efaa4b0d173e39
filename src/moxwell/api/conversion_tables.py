"""
Conversions as data: tables that map field paths of an older version to those of a newer one.

``ConversionTable((FieldMove("rolloutAfter", "rollout.after"), …))`` converts in both directions.
Fields that no row names stay where they are, unknown fields included. Rows apply first to last
towards the hub and last to first from it, so a row may rely on the rows before it.
"""

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from moxwell.api.conversion import NotConvertible

JsonObject = dict[str, Any]
ConvertValue = Callable[[Any], Any]
_PART = re.compile(r"([0-9]*\.?[0-9]+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}


def unchanged(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class FieldMove:
    """
    Path ``old`` of the older version is path ``new`` of the newer one, with optional value
    conversions.
    """

    old: str
    new: str
    to_hub: ConvertValue = unchanged
    from_hub: ConvertValue = unchanged


@dataclass(frozen=True, slots=True)
class ConversionTable:
    """Converts copies of JSON objects by a table of field moves."""

    rows: Sequence[FieldMove]

    def to_hub(self, tree: JsonObject) -> JsonObject:
        """Convert from the older version to the newer."""
        out = copy.deepcopy(tree)
        for row in self.rows:
            move_value(out, row.old, row.new, row.to_hub)
        return out

    def from_hub(self, tree: JsonObject) -> JsonObject:
        """Convert from the newer version to the older."""
        out = copy.deepcopy(tree)
        for row in reversed(self.rows):
            move_value(out, row.new, row.old, row.from_hub)
        return out


def below(path: str, rows: Sequence[FieldMove]) -> tuple[FieldMove, ...]:
    """Prefix both paths of every row."""
    return tuple(
        FieldMove(f"{path}.{r.old}", f"{path}.{r.new}", r.to_hub, r.from_hub) for r in rows
    )


def move_value(tree: JsonObject, source: str, target: str, convert: ConvertValue) -> None:
    """Move a value from one path to another; an absent or null value stays absent."""
    value = _pop(tree, source.split("."))
    if value is not None:
        _put(tree, target.split("."), convert(value))


def _pop(tree: Any, path: list[str]) -> Any:
    if not isinstance(tree, dict) or path[0] not in tree:
        return None
    if len(path) == 1:
        return tree.pop(path[0])
    inner = tree[path[0]]
    value = _pop(inner, path[1:])
    if value is not None and inner == {}:
        del tree[path[0]]  # the parent held nothing but the moved field
    return value


def _put(tree: JsonObject, path: list[str], value: Any) -> None:
    for part in path[:-1]:
        inner = tree.get(part)
        if not isinstance(inner, dict):
            inner = tree[part] = {}
        tree = inner
    tree[path[-1]] = value


def seconds(text: Any) -> int:
    """Parse a Go duration such as ``1h2m3s`` to total seconds."""
    if isinstance(text, int):
        return text // 10**9  # Go encodes a time.Duration as a number of nanoseconds
    body = str(text).lstrip("+")
    parts = _PART.findall(body)
    if body != "0" and (not parts or "".join(n + unit for n, unit in parts) != body):
        raise NotConvertible(f"{text!r} is not a duration: write it like 10m or 1h30m")
    return int(sum(float(number) * _SECONDS[unit] for number, unit in parts))


def duration(total: int) -> str:
    """Format seconds as a Go duration."""
    hours, rest = divmod(int(total), 3600)
    minutes, rest_seconds = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes}m{rest_seconds}s"
    return f"{minutes}m{rest_seconds}s" if minutes else f"{rest_seconds}s"
