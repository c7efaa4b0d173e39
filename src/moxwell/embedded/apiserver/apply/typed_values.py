"""
Field sets, comparison, merge and removal of values with a schema, as in structured-merge-diff.

The schema decides what is a leaf. ``MISSING`` differs from ``None``: a field set to null exists.
Results share parts with the arguments, which are never modified.
"""

from typing import Any

from moxwell.embedded.apiserver.apply import field_sets
from moxwell.embedded.apiserver.apply.field_sets import Node
from moxwell.embedded.apiserver.merge_schema import LIST, MAP, MergeSchema


class _Missing:
    __slots__ = ()


MISSING = _Missing()


def fields_of(value: Any, schema: MergeSchema) -> Node:
    """Return the set of fields in an applied configuration."""
    node, _ = _fields(value, schema)
    return node


def _fields(value: Any, schema: MergeSchema) -> tuple[Node, bool]:
    """Return the children of the value's node, and whether the value itself is a path."""
    schema = schema.of(value)
    if schema.atomic or not isinstance(value, (dict, list)):
        return {}, schema.atomic or value is not None or schema.kind not in (MAP, LIST)
    made: Node = {}
    if isinstance(value, dict) and schema.kind == MAP:
        for key, item in value.items():
            children, leaf = _fields(item, schema.field(key))
            member = leaf or item is None or item == {} or not schema.has(key)
            built = field_sets.node(member, children)
            if built is not None:
                made["f:" + key] = built
    elif isinstance(value, list) and schema.kind == LIST:
        for at, item in enumerate(value):
            children, _ = _fields(item, schema.element())
            made[field_sets.element_of(item, schema, at)] = field_sets.node(True, children) or {}
    else:
        return {}, True
    return made, False


class Comparison:
    """The fields that differ between two values."""

    __slots__ = ("_changed", "added", "modified", "removed")

    def __init__(self, added: Node, modified: Node, removed: Node) -> None:
        self.added, self.modified, self.removed = added, modified, removed
        self._changed: Node | None = None  # asked for each manager of an object

    @property
    def same(self) -> bool:
        return not (self.added or self.modified or self.removed)

    def changed(self) -> Node:
        if self._changed is None:
            self._changed = field_sets.union(self.added, self.modified)
        return self._changed


def compare(old: Any, new: Any, schema: MergeSchema) -> Comparison:
    """Compare two values."""
    added: Node = {}
    modified: Node = {}
    removed: Node = {}
    _compare_members(old, new, schema.of(new), (added, modified, removed))
    return Comparison(added, modified, removed)


Sinks = tuple[Node, Node, Node]


def _compare(old: Any, new: Any, schema: MergeSchema, element: str, sinks: Sinks) -> None:
    """
    Compare one child and add its differing paths below ``element`` to the sinks of its parent.
    """
    if old is new or (old.__class__ is new.__class__ and old == new):
        return
    schema = schema.of(old if new is MISSING or new is None else new)
    inner: Sinks = ({}, {}, {})
    leaf = _is_leaf(old, new, schema)
    if not leaf:
        _compare_members(old, new, schema, inner)
    for at, (sink, below) in enumerate(zip(sinks, inner, strict=True)):
        member = (
            old is MISSING
            if at == 0
            else new is MISSING
            if at == 2
            else leaf and old is not MISSING and new is not MISSING
        )
        made = field_sets.node(member, below)
        if made is not None:
            sink[element] = made


def _is_leaf(old: Any, new: Any, schema: MergeSchema) -> bool:
    if schema.atomic or schema.kind not in (MAP, LIST):
        return True
    kind = dict if schema.kind == MAP else list
    if not _fits(old, kind) or not _fits(new, kind):
        return True
    return _is_nothing(old) and _is_nothing(new)


def _fits(value: Any, kind: type) -> bool:
    return value is MISSING or value is None or isinstance(value, kind)


def _is_nothing(value: Any) -> bool:
    return value is MISSING or not value


def _compare_members(old: Any, new: Any, schema: MergeSchema, sinks: Sinks) -> None:
    if schema.kind == MAP:
        before = old if isinstance(old, dict) else {}
        after = new if isinstance(new, dict) else {}
        for key, value in after.items():
            was = before.get(key, MISSING)
            if was is not value:  # most are shared
                _compare(was, value, schema.field(key), "f:" + key, sinks)
        for key, value in before.items():
            if key not in after:
                _compare(value, MISSING, schema.field(key), "f:" + key, sinks)
        return
    had, has = index(old, schema), index(new, schema)
    element = schema.element()
    for key, value in has.items():
        _compare(had.get(key, MISSING), value, element, key, sinks)
    for key, value in had.items():
        if key not in has:
            _compare(value, MISSING, element, key, sinks)


def index(value: Any, schema: MergeSchema) -> dict[str, Any]:
    """Map the items of a list by their path elements; of duplicates the first counts."""
    found: dict[str, Any] = {}
    for at, item in enumerate(value if isinstance(value, list) else ()):
        found.setdefault(field_sets.element_of(item, schema, at), item)
    return found


def merge(live: Any, config: Any, schema: MergeSchema) -> Any:
    """Merge an applied configuration into the live value."""
    if config is MISSING:
        return live
    if live is MISSING:
        return config
    schema = schema.of(config if config is not None else live)
    if schema.atomic or schema.kind not in (MAP, LIST):
        return config
    if schema.kind == MAP:
        return _merge_maps(live, config, schema)
    return _merge_lists(live, config, schema)


def _merge_maps(live: Any, config: Any, schema: MergeSchema) -> Any:
    if not isinstance(live, dict) or not isinstance(config, dict):
        return live if config is None and live else config
    made = dict(live)
    for key, value in config.items():
        made[key] = merge(live.get(key, MISSING), value, schema.field(key))
    return made


def _merge_lists(live: Any, config: Any, schema: MergeSchema) -> Any:
    if not isinstance(live, list) or not isinstance(config, list):
        return live if config is None and live else config
    left = [(field_sets.element_of(item, schema, at), item) for at, item in enumerate(live)]
    right = [(field_sets.element_of(item, schema, at), item) for at, item in enumerate(config)]
    return _Interleave(left, right, schema).run()


class _Interleave:
    """
    Merges two lists: shared items in the order of the right one, the others at their position.
    """

    def __init__(
        self, left: list[tuple[str, Any]], right: list[tuple[str, Any]], schema: MergeSchema
    ) -> None:
        self.left, self.right, self.element = left, right, schema.element()
        self.had, self.has = dict(reversed(left)), dict(reversed(right))
        self.shared = [key for key, _ in right if key in self.had]
        self.done: set[str] = set()
        self.made: list[Any] = []
        self.at_left = self.at_right = 0

    def run(self) -> list[Any]:
        while self.at_left < len(self.left) or self.at_right < len(self.right):
            if not self._step_left():
                self._take_right()
        return self.made

    def _step_left(self) -> bool:
        """Process the next item of the left list; False when it is the right list's turn."""
        if self.at_left >= len(self.left):
            return False
        key, item = self.left[self.at_left]
        if self.at_right < len(self.right) and key == self.right[self.at_right][0]:
            self.at_left += 1
            self._take_right()
            return True
        wanted = self.shared[0] if self.shared else None
        if key in self.has:
            if key in self.done or (wanted is not None and wanted != key):
                self.at_left += 1
                return True
            return self.at_right >= len(self.right) and self._skip()
        self.made.append(item)
        self.at_left += 1
        return True

    def _skip(self) -> bool:
        self.at_left += 1
        return True

    def _take_right(self) -> None:
        key, item = self.right[self.at_right]
        self.at_right += 1
        self.done.add(key)
        self.made.append(merge(self.had.get(key, MISSING), item, self.element))
        if self.shared and self.shared[0] == key:
            self.shared.pop(0)


def remove(value: Any, gone: Node, schema: MergeSchema) -> Any:
    """Remove the paths of a set from the value; None if nothing remains."""
    schema = schema.of(value)
    if not gone or schema.atomic:
        return value
    if isinstance(value, dict) and schema.kind == MAP:
        kept: dict[str, Any] = {}
        for key, item in value.items():
            below = gone.get("f:" + key)
            if below is None:
                kept[key] = item
            elif not field_sets.is_member(below):
                kept[key] = remove(item, below, schema.field(key))
        return kept or None
    if isinstance(value, list) and schema.kind == LIST:
        items = []
        for at, item in enumerate(value):
            below = gone.get(field_sets.element_of(item, schema, at))
            if below is None:
                items.append(item)
            elif not field_sets.is_member(below):
                items.append(remove(item, below, schema.element()))
        return items or None
    return value
