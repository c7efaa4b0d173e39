"""
Differences between JSON trees: merge patches, and grafting a change onto a richer tree.

Used by patches on their way to an apiserver and by conversions between versions. Trees are dicts,
lists and scalars and are never changed in place.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Tree = Mapping[str, Any]
_KEYS = ("name", "type", "zone", "key", "net", "machine")


def merge_diff(old: Tree, new: Tree) -> dict[str, Any]:
    """The merge patch that makes ``old`` into ``new``: absent in ``new`` becomes null."""
    out: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old:
            out[key] = value
        elif isinstance(value, Mapping) and isinstance(old[key], Mapping):
            if inner := merge_diff(old[key], value):
                out[key] = inner
        elif not json_equal(old[key], value):
            out[key] = value
    return out


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: what a server makes of a merge patch."""
    if not isinstance(patch, Mapping):
        return patch
    out = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = apply_merge_patch(out.get(key), value)
    return out


def json_equal(one: Any, other: Any) -> bool:
    """Equal as JSON: unlike in Python, true is not 1."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(json_equal(v, other[k]) for k, v in one.items())
    if _is_list(one) and _is_list(other):
        return len(one) == len(other) and all(map(json_equal, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def without_nulls(value: Any) -> Any:
    """The same tree; what was null is absent."""
    if isinstance(value, Mapping):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(v) for v in value if v is not None]
    return value


def three_way_merge(full: Any, shown: Any, now: Any) -> Any:
    """
    ``full`` with the change from ``shown`` to ``now`` applied.

    ``shown`` is what a poorer form could show of ``full``, ``now`` what somebody made of it there.
    What the poorer form cannot express stays as it is in ``full``. Elements of lists are paired by
    their name (or similar), else by place while the length is unchanged.
    """
    if json_equal(shown, now):
        return full
    if all(isinstance(tree, Mapping) for tree in (full, shown, now)):
        return _graft_maps(full, shown, now)
    if all(_is_list(tree) for tree in (full, shown, now)):
        return _graft_lists(full, shown, now)
    return now


def _graft_maps(full: Tree, shown: Tree, now: Tree) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key in [*full, *(key for key in now if key not in full)]:
        if key not in now:
            if key not in shown:
                out[key] = full[key]
        elif key in full and key in shown:
            out[key] = three_way_merge(full[key], shown[key], now[key])
        else:
            out[key] = now[key]
    return out


def _graft_lists(full: Sequence[Any], shown: Sequence[Any], now: Sequence[Any]) -> list[Any]:
    key = next((k for k in _KEYS if all(_keyed(tree, k) for tree in (full, shown, now))), "")
    if key:
        fulls, showns = ({item[key]: item for item in tree} for tree in (full, shown))
        return [
            three_way_merge(fulls[item[key]], showns[item[key]], item)
            if item[key] in fulls and item[key] in showns
            else item
            for item in now
        ]
    if len(full) == len(shown) == len(now):
        return [three_way_merge(*parts) for parts in zip(full, shown, now, strict=True)]
    return list(now)


def _keyed(tree: Sequence[Any], key: str) -> bool:
    names = [item.get(key) if isinstance(item, Mapping) else None for item in tree]
    return all(isinstance(name, str) for name in names) and len(set(names)) == len(names)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
