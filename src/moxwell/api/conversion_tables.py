"""
Conversions as data: a table of what is called how in the older and in the newer form.

``Moves((Move("rolloutAfter", "rollout.after"), …))`` gives both directions; what no row names stays
where it is, unknown fields too. Rows apply from first to last going up, from last to first going
down, so a row may rely on what the rows before it did.
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
    """``old`` in the older form is ``new`` in the newer, perhaps written differently."""

    old: str
    new: str
    up: ConvertValue = unchanged
    down: ConvertValue = unchanged


@dataclass(frozen=True, slots=True)
class ConversionTable:
    """A table of moves, applied to copies."""

    rows: Sequence[FieldMove]

    def up(self, tree: JsonObject) -> JsonObject:
        """From the older form to the newer."""
        out = copy.deepcopy(tree)
        for row in self.rows:
            move_value(out, row.old, row.new, row.up)
        return out

    def down(self, tree: JsonObject) -> JsonObject:
        """From the newer form to the older."""
        out = copy.deepcopy(tree)
        for row in reversed(self.rows):
            move_value(out, row.new, row.old, row.down)
        return out


def below(path: str, rows: Sequence[FieldMove]) -> tuple[FieldMove, ...]:
    """The same moves somewhere deeper."""
    return tuple(FieldMove(f"{path}.{r.old}", f"{path}.{r.new}", r.up, r.down) for r in rows)


def move_value(tree: JsonObject, source: str, target: str, turn: ConvertValue) -> None:
    """Take a value from one path and put it at another; an absent or null one stays absent."""
    found = _pop(tree, source.split("."))
    if found is not None:
        _put(tree, target.split("."), turn(found))


def _pop(tree: Any, path: list[str]) -> Any:
    if not isinstance(tree, dict) or path[0] not in tree:
        return None
    if len(path) == 1:
        return tree.pop(path[0])
    inner = tree[path[0]]
    found = _pop(inner, path[1:])
    if found is not None and inner == {}:
        del tree[path[0]]  # it was there only for what has moved
    return found


def _put(tree: JsonObject, path: list[str], value: Any) -> None:
    for part in path[:-1]:
        inner = tree.get(part)
        if not isinstance(inner, dict):
            inner = tree[part] = {}
        tree = inner
    tree[path[-1]] = value


def seconds(text: Any) -> int:
    """A Go duration, ``1h2m3s``, in whole seconds."""
    if isinstance(text, int):
        return text // 10**9  # an unquoted number is nanoseconds in Go
    body = str(text).lstrip("+")
    parts = _PART.findall(body)
    if body != "0" and (not parts or "".join(n + unit for n, unit in parts) != body):
        raise NotConvertible(f"{text!r} is not a duration: write it like 10m or 1h30m")
    return int(sum(float(number) * _SECONDS[unit] for number, unit in parts))


def duration(whole: int) -> str:
    """Seconds the way Go writes them."""
    hours, rest = divmod(int(whole), 3600)
    minutes, left = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes}m{left}s"
    return f"{minutes}m{left}s" if minutes else f"{left}s"
