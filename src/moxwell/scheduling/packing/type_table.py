"""
The instance types of a pool as bit sets: bit *i* stands for type *i* of the catalogue.

Questions are answered for all types at once: which are compatible with a requirement set and have
an available offering for it, and which have room for a request. The table only remembers answers;
the same question has the same answer.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from operator import or_

from moxwell.scheduling.packing.instance_types import InstanceType, Offering
from moxwell.scheduling.packing.resource_axis import ResourceAxis, Vector
from moxwell.scheduling.requirement_sets import RequirementAlgebra, RequirementSet
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.scheduling.well_known_labels import ON_DEMAND, RESERVED, SPOT

_LAUNCHED_FIRST = (RESERVED, SPOT, ON_DEMAND)
_LIMIT = 2**62  # amounts fit into the arrays of the claim index


def bits(mask: int) -> Iterator[int]:
    """The numbers of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@dataclass(frozen=True, slots=True)
class OfferingGroup:
    """Available offerings with the same labels: their requirements, and the price by type."""

    requirements: RequirementSet
    prices: Mapping[int, float]


class PriceOrder:
    """Types, cheapest first; equal ones by their place in the catalogue."""

    __slots__ = ("_first", "offered", "prices", "types")

    def __init__(self, prices: list[float]) -> None:
        self.prices = prices
        self.types = sorted((price, index) for index, price in enumerate(prices))
        self.offered = _mask(price < inf for price in prices)
        self._first = list(accumulate((1 << index for _, index in self.types), or_))

    def cheapest_price(self, mask: int) -> float:
        """The lowest price of the types of a mask."""
        first = self._first
        if not first or not first[-1] & mask:
            return inf
        return self.types[bisect_left(first, True, key=lambda seen: seen & mask != 0)][0]


class TypeTable:
    """Instance types of one catalogue, indexed by requirement and by resource."""

    def __init__(
        self, types: tuple[InstanceType, ...], axis: ResourceAxis, algebra: RequirementAlgebra
    ) -> None:
        self.types = types
        self.all = (1 << len(types)) - 1
        self.offerings = tuple(
            tuple((o, algebra.of_labels(o.labels)) for o in t.offerings) for t in types
        )
        self._algebra = algebra
        self._by_key = _by_key(types)
        self._groups = self._offering_groups()
        self._levels = [
            _levels([axis.vector(t.allocatable)[i] for t in types]) for i in range(len(axis.zero))
        ]
        self._capacities = _capacities(types)
        self._by_capacity = {n: _ranked(amounts) for n, amounts in self._capacities.items()}
        self._by_allocatable = [
            _ranked([axis.vector(t.allocatable)[i] for t in types]) for i in range(len(axis.zero))
        ]
        self._largest: dict[int, Vector] = {}
        self._positive = _mask(min(axis.vector(t.allocatable)) >= 0 for t in types)
        self.reserved = _mask(
            any(o.available and o.capacity_type == RESERVED for o in t.offerings) for t in types
        )
        self._key_masks: dict[LabelRequirement, int] = {}
        self._compatible: dict[int, int] = {}
        self._orders: dict[frozenset[int], PriceOrder] = {}
        self._order_of: dict[int, PriceOrder] = {}
        self._worst: dict[tuple[int, int], float] = {}

    def _offering_groups(self) -> tuple[OfferingGroup, ...]:
        sets: dict[int, RequirementSet] = {}
        prices: dict[int, dict[int, float]] = {}
        for index, offerings in enumerate(self.offerings):
            for offering, wanted in offerings:
                if offering.available:
                    sets[wanted.number] = wanted
                    known = prices.setdefault(wanted.number, {})
                    known[index] = min(offering.price, known.get(index, inf))
        return tuple(OfferingGroup(sets[n], known) for n, known in prices.items())

    def usable(self, requirements: RequirementSet) -> int:
        """Types that are compatible and have an available compatible offering."""
        return self.compatible(requirements) & self.offered(requirements)

    def compatible(self, requirements: RequirementSet) -> int:
        """Types whose own requirements do not conflict."""
        found = self._compatible.get(requirements.number)
        if found is None:
            found = self.all
            for each in requirements.entries.values():
                found &= self._key_mask(each)
            self._compatible[requirements.number] = found
        return found

    def _key_mask(self, wanted: LabelRequirement) -> int:
        found = self._key_masks.get(wanted)
        if found is None:
            found = self.all
            for own, mask in self._by_key.get(wanted.key, {}).items():
                if own.conflicts(wanted):
                    found &= ~mask
            self._key_masks[wanted] = found
        return found

    def offered(self, requirements: RequirementSet) -> int:
        """Types with an available offering that the requirements allow."""
        return self._order(requirements).offered

    def _order(self, requirements: RequirementSet) -> PriceOrder:
        found = self._order_of.get(requirements.number)
        if found is None:
            allowed = frozenset(
                n for n, g in enumerate(self._groups) if self.allows(requirements, g.requirements)
            )
            found = self._orders.get(allowed)
            if found is None:
                found = self._orders[allowed] = PriceOrder(self._prices(allowed))
            self._order_of[requirements.number] = found
        return found

    def _prices(self, allowed: Iterable[int]) -> list[float]:
        """The lowest price of each type among some groups of offerings; infinite if none."""
        prices = [inf] * len(self.types)
        for number in allowed:
            for index, price in self._groups[number].prices.items():
                prices[index] = min(price, prices[index])
        return prices

    def allows(self, requirements: RequirementSet, offering: RequirementSet) -> bool:
        """Whether an offering with these requirements can serve a node claim."""
        return not self._algebra.mismatches(requirements, offering, lenient=True)

    def fitting(self, request: Vector) -> int:
        """Types with room for the request."""
        found = self._positive
        for amount, (levels, masks) in zip(request, self._levels, strict=True):
            if amount > 0:
                found &= masks[bisect_left(levels, amount)]
        return found

    def attachable(self, volumes: Iterable[tuple[str, str]]) -> int:
        """Types to which so many volumes ``(driver, volume)`` can be attached."""
        counts = Counter(driver for driver, _ in volumes)
        return _mask(
            all(counts[driver] <= limit for driver, limit in t.volume_limits) for t in self.types
        )

    def within(self, limits: Mapping[str, int]) -> int:
        """Types whose capacity does not exceed what is left of a pool's limits."""
        found = self.all
        for name, left in limits.items():
            amounts = self._capacities.get(name)
            if amounts is None:
                found = found if left >= 0 else 0
            elif left < self._by_capacity[name][0][0]:
                found &= _mask(a <= left for a in amounts)
        return found

    def largest_capacity(self, mask: int, names: Iterable[str]) -> dict[str, int]:
        """The largest capacity of each resource among the types."""
        return {n: _largest(self._by_capacity[n], mask) for n in names if n in self._by_capacity}

    def largest_allocatable(self, mask: int) -> Vector:
        """The largest allocatable amount of each resource among the types."""
        found = self._largest.get(mask)
        if found is None:
            found = tuple(min(_largest(ranked, mask), _LIMIT) for ranked in self._by_allocatable)
            self._largest[mask] = found
        return found

    def launchable(self, index: int, requirements: RequirementSet) -> Iterator[Offering]:
        """The available offerings of a type that the requirements allow."""
        for offering, own in self.offerings[index]:
            if offering.available and self.allows(requirements, own):
                yield offering

    def price(self, index: int, requirements: RequirementSet) -> float:
        """The price of the cheapest launchable offering; infinite if there is none."""
        return self._order(requirements).prices[index]

    def worst_price(self, index: int, requirements: RequirementSet) -> float:
        """
        The highest price of a type at a launch; infinite if there is no offering.

        Reserved capacity is launched before spot, and spot before on-demand.
        """
        key = (index, requirements.number)
        found = self._worst.get(key)
        if found is None:
            prices: dict[str, float] = {}
            for offering in self.launchable(index, requirements):
                kind = offering.capacity_type
                prices[kind] = max(offering.price, prices.get(kind, 0.0))
            known = (prices[kind] for kind in _LAUNCHED_FIRST if kind in prices)
            found = self._worst[key] = next(known, inf)
        return found

    def by_price(self, requirements: RequirementSet) -> list[tuple[float, int]]:
        """All types with their price, cheapest first, then by their place in the catalogue."""
        return self._order(requirements).types

    def cheapest_first(self, mask: int, requirements: RequirementSet) -> tuple[int, ...]:
        """Types of a mask, cheapest first."""
        return tuple(i for _, i in self.by_price(requirements) if mask >> i & 1)

    def cheapest_price(self, mask: int, requirements: RequirementSet) -> float:
        """The lowest price of the types of a mask."""
        return self._order(requirements).cheapest_price(mask)

    def value_counts(self, mask: int, requirements: RequirementSet) -> dict[str, int]:
        """How many values of each label with ``minValues`` the types have."""
        counts = {}
        for each in requirements.min_values:
            values: set[str] = set()
            for own, types in self._by_key.get(each.key, {}).items():
                if types & mask:
                    values |= own.values
            counts[each.key] = len(values)
        return counts

    def missing_values(self, mask: int, requirements: RequirementSet) -> dict[str, int]:
        """The labels whose ``minValues`` the types do not cover, with the number they have."""
        if not mask or not requirements.min_values:
            return {}
        least = {r.key: r.min_values or 0 for r in requirements.min_values}
        found = self.value_counts(mask, requirements)
        return {key: count for key, count in found.items() if count < least[key]}


def _by_key(types: tuple[InstanceType, ...]) -> Mapping[str, Mapping[LabelRequirement, int]]:
    result: dict[str, dict[LabelRequirement, int]] = {}
    for index, each in enumerate(types):
        own: dict[str, LabelRequirement] = {}
        for r in each.requirements:
            own[r.key] = r.intersection(own[r.key]) if r.key in own else r
        for key, r in own.items():
            masks = result.setdefault(key, {})
            masks[r] = masks.get(r, 0) | 1 << index
    return result


def _capacities(types: tuple[InstanceType, ...]) -> dict[str, list[int]]:
    names = {name for t in types for name in t.capacity}
    return {name: [t.capacity.get(name, 0) for t in types] for name in names}


def _ranked(amounts: list[int]) -> list[tuple[int, int]]:
    """Amounts, largest first, each with the bit of its type."""
    return sorted(((a, 1 << i) for i, a in enumerate(amounts)), reverse=True)


def _largest(ranked: list[tuple[int, int]], mask: int) -> int:
    for amount, bit in ranked:
        if bit & mask:
            return amount
    return 0


def _levels(amounts: list[int]) -> tuple[list[int], list[int]]:
    """Distinct amounts ascending, and for each the types that have at least as much."""
    levels = sorted(set(amounts))
    masks = [_mask(a >= level for a in amounts) for level in levels]
    return levels, [*masks, 0]


def _mask(flags: Iterator[bool]) -> int:
    return sum(1 << i for i, flag in enumerate(flags) if flag)
