"""
Estimates the greatest cost of an expression before it ever runs, with the figures of cel-go.

An identifier or a selection costs 1, a call 1 or in proportion to its arguments, a macro its body
for every element.
"""

import math
from collections.abc import Callable, Mapping

from moxwell.embedded.apiserver.cel.parser import (
    CallNode,
    Index,
    ListOf,
    Literal,
    MapOf,
    Name,
    Node,
    Select,
)
from moxwell.embedded.apiserver.cel.sizes import ANYTHING, SCALAR, SizeEstimate

LIST_COST, MAP_COST = 10, 30
TRAVERSAL, REGEX = 0.1, 0.25
Scope = Mapping[str, SizeEstimate]
Estimate = tuple[int, SizeEstimate]
_OVERHEAD = {"all": 3, "exists": 4, "exists_one": 4, "existsOne": 4, "map": 12, "filter": 13}
_LINEAR = frozenset(
    ["isSorted", "sum", "min", "max", "indexOf", "lastIndexOf", "reverse", "flatten"]
)
_PRODUCT = frozenset(["sets.contains", "sets.intersects", "sets.equivalent"])
_COMPARISONS = frozenset(["==", "!=", "<", "<=", ">", ">="])
_TEXTS = frozenset(
    ["replace", "substring", "trim", "lowerAscii", "upperAscii", "join", "format", "string"]
)


def traversal(size: int, factor: float = TRAVERSAL) -> int:
    return math.ceil(size * factor)


def estimate(node: Node, scope: Scope) -> Estimate:
    """Return the greatest cost of an expression and the greatest size of its result."""
    match node:
        case Literal(value):
            return 0, SizeEstimate(len(value)) if isinstance(value, (str, bytes)) else SCALAR
        case Name(name):
            return 1, scope.get(name, ANYTHING)
        case Select(of, field, _):
            cost, size = estimate(of, scope)
            return cost + 1, size.field(field)
        case Index(of, at, _):
            (cost, size), (key, _) = estimate(of, scope), estimate(at, scope)
            return cost + key + 1, size.element or ANYTHING
        case ListOf(items):
            found = [estimate(item, scope) for item in items]
            element = max((size for _, size in found), key=lambda s: s.maximum, default=SCALAR)
            return LIST_COST + sum(c for c, _ in found), SizeEstimate(len(items), element)
        case MapOf(pairs):
            costs = sum(estimate(part, scope)[0] for pair in pairs for part in pair)
            return MAP_COST + costs, SizeEstimate(len(pairs), ANYTHING, is_map=True)
        case CallNode():
            return _call(node, scope)


def _call(node: CallNode, scope: Scope) -> Estimate:
    if node.of is not None and node.name in _OVERHEAD and isinstance(node.args[0], Name):
        return _macro(node, node.args[0].name, scope)
    if node.name in ("optMap", "optFlatMap") and node.of is not None:
        cost, _ = estimate(node.of, scope)
        body, size = estimate(node.args[1], scope)
        return cost + body + 2, size
    if node.name == "?:":
        (test, _), yes, no = (estimate(arg, scope) for arg in node.args)
        return test + max(yes[0], no[0]), max(yes[1], no[1], key=lambda s: s.maximum)
    qualified = f"{node.of.name}.{node.name}" if isinstance(node.of, Name) else ""
    operands = node.args if node.of is None or qualified in _PRODUCT else (node.of, *node.args)
    if qualified and qualified.split(".")[0] not in scope and qualified not in _PRODUCT:
        operands = node.args  # a namespace, not a value
    found = [estimate(arg, scope) for arg in operands]
    costs, sizes = sum(cost for cost, _ in found), [size for _, size in found]
    if node.name == "in" and sizes[1].is_map:
        return costs + 1, SCALAR
    own, result = _function(qualified if qualified in _PRODUCT else node.name, sizes)
    return costs + own, result


def _macro(node: CallNode, variable: str, scope: Scope) -> Estimate:
    assert node.of is not None
    cost, size = estimate(node.of, scope)
    element = SCALAR if size.is_map else (size.element or ANYTHING)
    bodies = [estimate(arg, {**scope, variable: element}) for arg in node.args[1:]]
    per = sum(body for body, _ in bodies) + _OVERHEAD[node.name]
    result = SCALAR
    if node.name in ("map", "filter"):
        result = SizeEstimate(size.maximum, bodies[-1][1] if node.name == "map" else element)
    return cost + 1 + size.maximum * per, result


def _function(name: str, sizes: list[SizeEstimate]) -> Estimate:
    """Return the cost of a call without its arguments, and the size of its result."""
    first = sizes[0].maximum if sizes else 1
    second = sizes[1].maximum if len(sizes) > 1 else 1
    if name in ("&&", "||", "has"):
        return 0, SCALAR
    if name in _COMPARISONS:
        return max(1, traversal(min(first, second))), SCALAR
    if name == "+":
        total = first + second
        cost = traversal(total) if sizes[0].element is None and total > 2 else 1
        return cost, SizeEstimate(total if total > 2 else 1, sizes[0].element)
    special = _SPECIAL.get(name)
    if special is not None:
        return max(1, special(first, second)), _result(name, first)
    if name in _LINEAR:
        element = sizes[0].element or SCALAR
        return 1 + first * max(1, traversal(element.maximum)), sizes[0]
    if name in _PRODUCT:
        return 1 + first * second, SCALAR
    if name in _TEXTS:
        return 1 + traversal(first), SizeEstimate(first * max(1, second if name == "join" else 1))
    return 1, SCALAR if len(sizes) < 2 else sizes[0]


def _result(name: str, first: int) -> SizeEstimate:
    if name in ("split", "findAll"):
        return SizeEstimate(first, SizeEstimate(first))
    return SizeEstimate(first) if name in ("url", "base64.encode") else SCALAR


_SPECIAL: Mapping[str, Callable[[int, int], int]] = {
    "startsWith": lambda text, other: traversal(other),
    "endsWith": lambda text, other: traversal(other),
    "contains": lambda text, other: traversal(text) * traversal(other),
    "matches": lambda text, other: traversal(text + 1) * max(1, traversal(other, REGEX)),
    "find": lambda text, other: traversal(text + 1) * max(1, traversal(other, REGEX)),
    "findAll": lambda text, other: traversal(text + 1) * max(1, traversal(other, REGEX)),
    "in": lambda item, of: of,
    "split": lambda text, other: 2 * traversal(text),
    "distinct": lambda items, _: items * items,
    "isURL": lambda text, _: traversal(text),
    "url": lambda text, _: traversal(text),
    "quantity": lambda text, _: traversal(text),
    "isQuantity": lambda text, _: traversal(text),
}
