"""Resource lists as tuples of numbers, in one order of resource names per solver. Pure."""

from collections.abc import Iterable, Mapping
from operator import add, sub

from moxwell.scheduling.resource_lists import CPU, MEMORY, PODS

Vector = tuple[int, ...]


class ResourceAxis:
    """
    The resource names that matter, in a fixed order.

    The last place of a vector sums up resources that no machine has: a pod that requests one fits
    nowhere.
    """

    def __init__(self, names: Iterable[str]) -> None:
        rest = sorted(set(names) - {CPU, MEMORY, PODS})
        self.names = (CPU, MEMORY, PODS, *rest)
        self.zero: Vector = (0,) * (len(self.names) + 1)

    def vector(self, amounts: Mapping[str, int]) -> Vector:
        """A resource list as a vector; resources without a place count in the last one."""
        known = tuple(amounts.get(name, 0) for name in self.names)
        others = sum(a for n, a in amounts.items() if a > 0 and n not in self.names)
        return (*known, others)

    def amounts(self, vector: Vector) -> dict[str, int]:
        """A vector as a resource list, zeros left out."""
        return {n: a for n, a in zip(self.names, vector, strict=False) if a}


def plus(a: Vector, b: Vector) -> Vector:
    return tuple(map(add, a, b))


def minus(a: Vector, b: Vector) -> Vector:
    return tuple(map(sub, a, b))


def fits(request: Vector, available: Vector) -> bool:
    """Whether a request fits; nothing fits where something is already overcommitted."""
    return all(0 <= a >= r for r, a in zip(request, available, strict=True))
