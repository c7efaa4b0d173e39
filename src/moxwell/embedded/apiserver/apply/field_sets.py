"""
Sets of field paths as nested dicts, the format of ``managedFields`` (FieldsV1).

``{"f:spec": {"f:a": {}, "f:b": {".": {}, "f:c": {}}}}`` holds spec.a, spec.b and spec.b.c, but not
spec: a node is a member when it is empty or has ``"."``. Functions do not modify their arguments.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from moxwell.embedded.apiserver.merge_schema import LIST, MAP, MergeSchema

Node = dict[str, Any]
EMPTY: Node = {}
_HERE = "."


def is_member(node: Node) -> bool:
    return not node or _HERE in node


def node(member: bool, children: Node) -> Node | None:
    """Build a node; None if it is empty."""
    if not children:
        return {} if member else None
    return {_HERE: {}, **children} if member else children


def _children(of: Node) -> Node:
    return {k: v for k, v in of.items() if k != _HERE} if _HERE in of else of


def union(a: Node, b: Node) -> Node:
    """Union at the root."""
    if not a or not b:
        return a or b
    made = dict(a)
    for key, other in b.items():
        mine = made.get(key)
        made[key] = other if mine is None else _union(mine, other)
    return made


def _union(a: Node, b: Node) -> Node:
    children = union(_children(a), _children(b))
    return node(is_member(a) or is_member(b), children) or {}


def intersection(a: Node, b: Node) -> Node:
    made: Node = {}
    for key, mine in a.items():
        other = b.get(key)
        if other is None or key == _HERE:
            continue
        both = node(
            is_member(mine) and is_member(other), intersection(_children(mine), _children(other))
        )
        if both is not None:
            made[key] = both
    return made


def difference(a: Node, b: Node) -> Node:
    """Return the paths of ``a`` that are not in ``b``; paths below a member of ``b`` stay."""
    if not b:
        return a
    made: Node = {}
    for key, mine in a.items():
        other = b.get(key)
        if other is None:
            made[key] = mine
            continue
        rest = node(
            is_member(mine) and not is_member(other), difference(_children(mine), _children(other))
        )
        if rest is not None:
            made[key] = rest
    return made


def without(a: Node, b: Node) -> Node:
    """Return the paths of ``a`` that are neither in ``b`` nor below one of its members."""
    made: Node = {}
    for key, mine in a.items():
        other = b.get(key)
        if other is None:
            made[key] = mine
        elif not is_member(other):
            rest = node(is_member(mine), without(_children(mine), _children(other)))
            if rest is not None:
                made[key] = rest
    return made


def only(a: Node, keep: tuple[str, ...]) -> Node:
    """Return the paths that begin with one of these elements."""
    return {key: value for key, value in a.items() if key in keep}


def paths(a: Node, prefix: str = "") -> Iterator[str]:
    """
    List all paths as error messages write them, members of a level before the paths below them.
    """
    keys = [key for key in sorted(a, key=_order) if key != _HERE]
    yield from (prefix + shown(key) for key in keys if is_member(a[key]))
    for key in keys:
        yield from paths(_children(a[key]), prefix + shown(key))


def _order(key: str) -> tuple[int, str]:
    return "fkvi".find(key[:1]), key


def shown(element: str) -> str:
    kind, _, rest = element.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        keys = json.loads(rest)
        return "[" + ",".join(f"{k}={_compact(v)}" for k, v in sorted(keys.items())) + "]"
    return f"[={rest}]" if kind == "v" else f"[{rest}]"


def _compact(value: Any) -> str:
    """The JSON of a value as Go writes it; texts, which nearly all are, take the faster encoder."""
    texts = value.values() if isinstance(value, dict) else (value,)
    if all(text.__class__ is str for text in texts):
        with contextlib.suppress(UnicodeEncodeError):  # half of a surrogate pair
            return msgspec.json.encode(value).decode()
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def element_of(item: Any, schema: MergeSchema, at: int) -> str:
    """Return the path element of a list item."""
    if schema.keys and isinstance(item, dict):
        keys = {}
        for key in sorted(schema.keys):
            value = item.get(key, schema.defaults.get(key))
            if value is not None:
                keys[key] = value
        return "k:" + _compact(keys)
    return f"i:{at}" if schema.keys else "v:" + _compact(item)


def named_as_members(a: Node, schema: MergeSchema) -> Node:
    """Add every declared field on the way to a path as a member."""
    made: Node = {}
    for key, child in a.items():
        if key == _HERE:
            made[key] = child
            continue
        below, named = _descend(schema, key)
        inner = named_as_members(_children(child), below)
        made[key] = node(is_member(child) or named, inner) or {}
    return made


def _descend(schema: MergeSchema, element: str) -> tuple[MergeSchema, bool]:
    if element.startswith("f:") and schema.kind == MAP:
        return schema.field(element[2:]), schema.has(element[2:])
    return (schema.element() if schema.kind == LIST else schema), False
