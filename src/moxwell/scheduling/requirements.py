"""
The requirements algebra of Karpenter: the values that a label may have, and intersections. Pure.

A requirement is a set of label values: the listed ones (In, DoesNotExist is the empty list), or all
but the listed ones (NotIn, Exists), the latter optionally within integer bounds. Gt and Lt are kept
as inclusive bounds, as Karpenter writes them. ``min_values`` says how many values of the label the
instance types of a node claim must cover.

As in Karpenter, a requirement with bounds counts as Exists, an empty intersection is written as
DoesNotExist, and two requirements that both admit the absence of the label (NotIn, DoesNotExist)
never conflict.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from moxwell.errors import Invalid

MAX_INT = 2**63 - 1
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_SHOWN_VALUES = 5


class RequirementOperator(StrEnum):
    """Operators of ``NodeSelectorRequirementWithMinValues``."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"
    GTE = "Gte"
    LTE = "Lte"


class InvalidRequirement(Invalid):
    """The requirement of a NodePool or pod is malformed."""

    reason = "InvalidRequirement"


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """The values that a label may have."""

    key: str
    complement: bool = False
    values: frozenset[str] = frozenset()
    gte: int | None = None
    lte: int | None = None
    min_values: int | None = None

    @property
    def operator(self) -> RequirementOperator:
        """In, NotIn, Exists or DoesNotExist; bounds count as Exists."""
        if self.complement:
            return RequirementOperator.NOT_IN if self.values else RequirementOperator.EXISTS
        return RequirementOperator.IN if self.values else RequirementOperator.DOES_NOT_EXIST

    @property
    def is_negative(self) -> bool:
        """Whether a node without the label satisfies the requirement."""
        return bool(self.values) if self.complement else not self.values

    @property
    def only(self) -> str | None:
        """The single value that is allowed, if there is exactly one."""
        if self.complement or len(self.values) != 1:
            return None
        return next(iter(self.values))

    def has(self, value: str) -> bool:
        """Whether the value is allowed."""
        return (value in self.values) != self.complement and _within(value, self.gte, self.lte)

    def intersection(self, other: "LabelRequirement") -> "LabelRequirement":
        """The values that both allow; ``min_values`` is the larger."""
        if other is self:
            return self
        gte, lte = _largest(self.gte, other.gte), _smallest(self.lte, other.lte)
        least = _largest(self.min_values, other.min_values)
        if gte is not None and lte is not None and gte > lte:
            return LabelRequirement(self.key, min_values=least)
        complement = self.complement and other.complement
        values = _common(self, other)
        if gte is not None or lte is not None:
            values = frozenset(v for v in values if _within(v, gte, lte))
        if not complement:
            gte = lte = None
        return LabelRequirement(self.key, complement, values, gte, lte, least)

    def intersects(self, other: "LabelRequirement") -> bool:
        """Whether any value is allowed by both."""
        gte, lte = _largest(self.gte, other.gte), _smallest(self.lte, other.lte)
        if gte is not None and lte is not None and gte > lte:
            return False
        if self.complement and other.complement:
            return True
        common = _common(self, other)
        if gte is None and lte is None:
            return bool(common)
        return any(_within(v, gte, lte) for v in common)

    def conflicts(self, incoming: "LabelRequirement") -> bool:
        """Whether no node can satisfy both; two negative requirements never conflict."""
        if self.intersects(incoming):
            return False
        return not (incoming.is_negative and self.is_negative)

    def with_min_values(self, least: int | None) -> "LabelRequirement":
        return replace(self, min_values=least)

    def expressions(self) -> tuple[tuple[RequirementOperator, tuple[str, ...]], ...]:
        """The operators and values of a NodeClaim's ``spec.requirements``, without the key."""
        bounds = []
        if self.gte is not None:
            bounds.append((RequirementOperator.GTE, (str(self.gte),)))
        if self.lte is not None:
            bounds.append((RequirementOperator.LTE, (str(self.lte),)))
        return tuple(bounds) or ((self.operator, tuple(sorted(self.values))),)

    def __str__(self) -> str:
        parts = [self.key, str(self.operator)]
        if self.values:
            shown = sorted(self.values)
            if (rest := len(shown) - _SHOWN_VALUES) > 0:
                shown = [*shown[:_SHOWN_VALUES], f"and {rest} others"]
            parts.append(f"[{' '.join(shown)}]")
        if self.gte is not None:
            parts.append(f">={self.gte}")
        if self.lte is not None:
            parts.append(f"<={self.lte}")
        if self.min_values is not None:
            parts.append(f"minValues {self.min_values}")
        return " ".join(parts)


def requirement(
    key: str, operator: str, values: Iterable[str] = (), min_values: int | None = None
) -> LabelRequirement:
    """Make a requirement from the fields of a NodePool, pod or instance type."""
    values = tuple(values)
    match operator:
        case RequirementOperator.IN:
            return LabelRequirement(key, False, frozenset(values), min_values=min_values)
        case RequirementOperator.NOT_IN:
            return LabelRequirement(key, True, frozenset(values), min_values=min_values)
        case RequirementOperator.EXISTS:
            return LabelRequirement(key, True, min_values=min_values)
        case RequirementOperator.DOES_NOT_EXIST:
            return LabelRequirement(key, min_values=min_values)
    return _bounded(key, operator, values, min_values)


def _bounded(
    key: str, operator: str, values: tuple[str, ...], min_values: int | None
) -> LabelRequirement:
    bound = integer(values[0]) if len(values) == 1 else None
    if operator not in set(RequirementOperator):
        raise InvalidRequirement(
            f"the operator {operator!r} on {key} is unknown: "
            f"use one of {', '.join(RequirementOperator)}"
        )
    if bound is None:
        raise InvalidRequirement(f"{operator} on {key} needs exactly one integer value")
    match operator:
        case RequirementOperator.GT if bound == MAX_INT:
            return LabelRequirement(key)
        case RequirementOperator.GT:
            return LabelRequirement(key, True, gte=bound + 1, min_values=min_values)
        case RequirementOperator.GTE:
            return LabelRequirement(key, True, gte=bound, min_values=min_values)
        case RequirementOperator.LT:
            return LabelRequirement(key, True, lte=bound - 1, min_values=min_values)
    return LabelRequirement(key, True, lte=bound, min_values=min_values)


def integer(text: str) -> int | None:
    """The 64-bit integer of a label value, or None."""
    if not _INTEGER.fullmatch(text) or len(text) > 20:
        return None
    number = int(text)
    return number if -MAX_INT - 1 <= number <= MAX_INT else None


def _common(a: LabelRequirement, b: LabelRequirement) -> frozenset[str]:
    """The listed values of an intersection: excluded ones if both are complements."""
    if a.complement:
        return a.values | b.values if b.complement else b.values - a.values
    return a.values - b.values if b.complement else a.values & b.values


def _within(value: str, gte: int | None, lte: int | None) -> bool:
    if gte is None and lte is None:
        return True
    number = integer(value)
    if number is None or (gte is not None and number < gte):
        return False
    return lte is None or number <= lte


def _largest(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return a if b is None else b
    return max(a, b)


def _smallest(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return a if b is None else b
    return min(a, b)
