"""
Resource lists of pods, nodes and instance types in thousandths of a unit. Pure.

A thousandth is the finest amount that the Kubernetes API accepts of CPU; whole numbers keep sums
exact. Requests are rounded up, what a machine offers is rounded down.
"""

import json
from collections.abc import Iterable, Mapping

from moxwell.api.quantity import Quantity, QuantityFormat

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
NODES = "nodes"
HUGE_PAGES = "hugepages-"
MILLI = 1000
_NANO_PER_MILLI = 10**6
_BYTES = ("memory", "storage", "hugepages-")

ResourceList = Mapping[str, int]


def requested(amounts: Mapping[str, str | int | float] | None) -> dict[str, int]:
    """Requested amounts, rounded up to thousandths."""
    return {name: Quantity.parse(text).milli for name, text in (amounts or {}).items()}


def offered(amounts: Mapping[str, str | int | float] | None) -> dict[str, int]:
    """Amounts that a machine has, rounded down to thousandths."""
    found = (amounts or {}).items()
    return {name: Quantity.parse(text).nano // _NANO_PER_MILLI for name, text in found}


def total(lists: Iterable[ResourceList]) -> dict[str, int]:
    """The sum of resource lists."""
    result: dict[str, int] = {}
    for each in lists:
        for name, amount in each.items():
            result[name] = result.get(name, 0) + amount
    return result


def largest(lists: Iterable[ResourceList]) -> dict[str, int]:
    """The largest amount of each resource."""
    result: dict[str, int] = {}
    for each in lists:
        for name, amount in each.items():
            result[name] = max(result.get(name, amount), amount)
    return result


def smallest(a: ResourceList, b: ResourceList) -> dict[str, int]:
    """The smaller amount of each resource that both lists name."""
    return {name: min(amount, b[name]) for name, amount in a.items() if name in b}


def less(a: ResourceList, b: ResourceList) -> dict[str, int]:
    """``a`` minus ``b``, for the resources that ``a`` names."""
    return {name: amount - b.get(name, 0) for name, amount in a.items()}


def quantity_text(name: str, milli: int) -> str:
    """The canonical quantity of an amount."""
    is_bytes = any(part in name for part in _BYTES)
    kind = QuantityFormat.BINARY if is_bytes else QuantityFormat.DECIMAL
    return str(Quantity(milli * _NANO_PER_MILLI, kind))


def resources_text(amounts: ResourceList) -> str:
    """A resource list as compact JSON, as Karpenter writes it in messages."""
    shown = {name: quantity_text(name, amounts[name]) for name in sorted(amounts)}
    return json.dumps(shown, separators=(",", ":"))
