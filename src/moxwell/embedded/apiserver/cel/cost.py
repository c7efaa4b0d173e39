"""
The cost budget of evaluations: what loops and functions may spend before they are stopped.

A macro spends the cost of its body for every element, a function in proportion to the sizes of its
arguments. Straight expressions are bounded by their length and spend nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moxwell.embedded.apiserver.cel import parser
from moxwell.embedded.apiserver.cel.parser import CallNode, Name, Node
from moxwell.errors import Invalid

BUDGET = "\1"  # the variable that holds the budget; no expression can name it
MACROS = ("all", "exists", "exists_one", "existsOne", "map", "filter")
ITERATION_COST = 3
PER_CALL = 1_000_000  # as in kube-apiserver
PER_OBJECT = 2_000_000  # kube-apiserver allows 10,000,000; Go evaluates about ten times faster


class CostExceeded(Invalid):
    """The evaluation was stopped."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class CostBudget:
    """What one evaluation may still spend."""

    __slots__ = ("remaining",)

    def __init__(self, remaining: int) -> None:
        self.remaining = remaining

    def spend(self, cost: int) -> None:
        self.remaining -= cost
        if self.remaining < 0:
            raise CostExceeded


def body_cost(node: Node) -> int:
    """Return the cost of evaluating a node once, without the bodies of macros in it."""
    inner = list(parser.children(node))
    if isinstance(node, CallNode) and node.name in MACROS and node.of is not None:
        inner = [node.of] if node.args and isinstance(node.args[0], Name) else inner
    return 1 + sum(body_cost(child) for child in inner)


def size(value: Any) -> int:
    """Return the number of characters and elements of a value, also of nested ones."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, list):
        return 1 + sum(map(size, value))
    if isinstance(value, dict):
        return 1 + sum(len(key) + size(item) for key, item in value.items())
    return 1


def _traversal(args: Sequence[Any]) -> int:
    return 1 + sum(map(size, args)) // 10


def _product(args: Sequence[Any]) -> int:
    """Every element is compared with every other."""
    lengths = [len(arg) for arg in args if isinstance(arg, (str, bytes, list, dict))]
    other = lengths[1] if len(lengths) > 1 else lengths[0] if lengths else 1
    return 1 + (1 + other) * (_traversal(args[:1]))


def _text_product(args: Sequence[Any]) -> int:
    return 1 + (1 + size(args[0]) // 10) * (1 + sum(map(size, args[1:])) // 10)


_CONSTANT = frozenset(["size", "has", "type", "dyn", "orValue", "or", "value", "hasValue"])
_COSTS: Mapping[str, Callable[[Sequence[Any]], int]] = {
    "distinct": _product,
    "sum": _product,
    "sets.contains": _product,
    "sets.intersects": _product,
    "sets.equivalent": _product,
    "matches": _text_product,
    "find": _text_product,
    "findAll": _text_product,
    "replace": lambda args: 1 + size(args[0]) * (1 + size(args[2]) // 10) if len(args) > 2 else 1,
    "join": lambda args: 1 + size(args[0]) + len(args[0]) * sum(map(size, args[1:])) // 10,
}


def call_cost(name: str, args: Sequence[Any]) -> int:
    """Return the cost of a call, from the values of its arguments."""
    if name in _CONSTANT:
        return 1
    return _COSTS.get(name, _traversal)(args)
