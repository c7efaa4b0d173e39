"""
Lists of resources: quantities by name, added and compared as Go does it.

Text in, text out, exact fractions between. The surprise: a sum is written in the form (binary or
decimal) of its first part that is not zero.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from moxwell.embedded.apiserver.builtin import quantities

Amounts = dict[str, "Amount"]


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity; ``suffix`` only tells the form it is written in."""

    value: Fraction
    suffix: str = ""

    def __add__(self, other: "Amount") -> "Amount":
        representation = other if not self.value else self
        return Amount(self.value + other.value, representation.suffix)

    def __sub__(self, other: "Amount") -> "Amount":
        representation = other if not self.value else self
        return Amount(self.value - other.value, representation.suffix)

    def __str__(self) -> str:
        return quantities.write(self.value, self.suffix)


ZERO, ONE = Amount(Fraction(0)), Amount(Fraction(1))


def amount(given: Any) -> Amount:
    """A quantity of an object that was checked already."""
    return Amount(*quantities.parse(str(given)))


def read(given: Mapping[str, Any] | None) -> Amounts:
    return {name: amount(text) for name, text in (given or {}).items()}


def added(one: Amounts, other: Amounts) -> Amounts:
    return {
        n: one.get(n, ZERO) + other.get(n, ZERO)
        for n in [*one, *(o for o in other if o not in one)]
    }


def largest(one: Amounts, other: Amounts) -> Amounts:
    found = dict(one)
    for name, value in other.items():
        if name not in found or value.value > found[name].value:
            found[name] = value
    return found


def total(parts: Iterable[Amounts]) -> Amounts:
    found: Amounts = {}
    for part in parts:
        found = added(found, part)
    return found


def write(given: Amounts) -> dict[str, str]:
    return {name: str(value) for name, value in sorted(given.items())}


def format_list(given: Amounts) -> str:
    """``cpu=1,pods=2``, as quotas are explained."""
    return ",".join(f"{name}={text}" for name, text in write(given).items())
