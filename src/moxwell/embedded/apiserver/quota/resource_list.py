"""
Resource lists (quantities by resource name): addition, maximum and formatting for quota.

A sum is written in the format (binary or decimal) of its first nonzero operand, as in apimachinery.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from moxwell.api.quantity import Quantity

ResourceList = dict[str, Quantity]
ZERO, ONE = Quantity.of(0), Quantity.of(1)


def parse(amounts: Mapping[str, Any] | None) -> ResourceList:
    return {name: Quantity.parse(text) for name, text in (amounts or {}).items()}


def add(one: ResourceList, other: ResourceList) -> ResourceList:
    return {
        n: one.get(n, ZERO) + other.get(n, ZERO)
        for n in [*one, *(o for o in other if o not in one)]
    }


def maximum(one: ResourceList, other: ResourceList) -> ResourceList:
    result = dict(one)
    for name, value in other.items():
        if name not in result or value > result[name]:
            result[name] = value
    return result


def sum_of(parts: Iterable[ResourceList]) -> ResourceList:
    result: ResourceList = {}
    for part in parts:
        result = add(result, part)
    return result


def to_strings(amounts: ResourceList) -> dict[str, str]:
    return {name: str(value) for name, value in sorted(amounts.items())}


def format_list(amounts: ResourceList) -> str:
    """Format as ``cpu=1,pods=2``, as in quota errors."""
    return ",".join(f"{name}={text}" for name, text in to_strings(amounts).items())
