"""
JSON merge patches (RFC 7386) and a three-way merge of JSON objects.

Used for patches to an API server and for conversion between versions. Arguments are never modified.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Tree = Mapping[str, Any]
_KEYS = ("name", "type", "zone", "key", "net", "machine")


def merge_diff(old: Tree, new: Tree) -> dict[str, Any]:
    """Compute the merge patch from ``old`` to ``new``; fields absent in ``new`` become null."""
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
    """Apply an RFC 7386 merge patch."""
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
    """Compare as JSON; unlike in Python, ``true`` differs from ``1``."""
    if one is other:
        return True
    if one.__class__ is str:  # most values are texts
        return bool(one == other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(json_equal(v, other[k]) for k, v in one.items())
    if _is_list(one) and _is_list(other):
        return len(one) == len(other) and all(map(json_equal, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def without_nulls(value: Any) -> Any:
    """Remove null values."""
    if isinstance(value, Mapping):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(v) for v in value if v is not None]
    return value


def three_way_merge(base: Any, ours: Any, theirs: Any) -> Any:
    """
    Apply the change from ``base`` to ``theirs`` onto ``ours``.

    ``base`` is ``ours`` as a version with fewer fields shows it, ``theirs`` is what was edited in
    that version. Fields that the version cannot express keep their value in ``ours``. List elements
    are matched by a key such as ``name``, else by index while the lengths are equal.
    """
    if json_equal(base, theirs):
        return ours
    if all(isinstance(tree, Mapping) for tree in (base, ours, theirs)):
        return _merge_maps(base, ours, theirs)
    if all(_is_list(tree) for tree in (base, ours, theirs)):
        return _merge_lists(base, ours, theirs)
    return theirs


def _merge_maps(base: Tree, ours: Tree, theirs: Tree) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key in [*ours, *(key for key in theirs if key not in ours)]:
        if key not in theirs:
            if key not in base:
                out[key] = ours[key]
        elif key in ours and key in base:
            out[key] = three_way_merge(base[key], ours[key], theirs[key])
        else:
            out[key] = theirs[key]
    return out


def _merge_lists(base: Sequence[Any], ours: Sequence[Any], theirs: Sequence[Any]) -> list[Any]:
    key = next((k for k in _KEYS if all(_keyed(tree, k) for tree in (base, ours, theirs))), "")
    if key:
        ours_by_key, base_by_key = ({item[key]: item for item in tree} for tree in (ours, base))
        return [
            three_way_merge(base_by_key[item[key]], ours_by_key[item[key]], item)
            if item[key] in ours_by_key and item[key] in base_by_key
            else item
            for item in theirs
        ]
    if len(ours) == len(base) == len(theirs):
        return [three_way_merge(*parts) for parts in zip(base, ours, theirs, strict=True)]
    return list(theirs)


def _keyed(tree: Sequence[Any], key: str) -> bool:
    names = [item.get(key) if isinstance(item, Mapping) else None for item in tree]
    return all(isinstance(name, str) for name in names) and len(set(names)) == len(names)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
