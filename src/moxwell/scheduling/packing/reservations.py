"""Reserved capacity that node claims of one run hold, by reservation."""

from collections.abc import Iterable, Mapping

from moxwell.scheduling.packing.instance_types import InstanceType, Offering
from moxwell.scheduling.well_known_labels import RESERVED


def reservation_capacities(types: Iterable[InstanceType]) -> dict[str, int]:
    """
    How many nodes each reservation has room for.

    A reservation that several instance types list with different capacities has the smallest.
    """
    left: dict[str, int] = {}
    for offering in (o for t in types for o in t.offerings if o.capacity_type == RESERVED):
        capacity = offering.reservation_capacity
        left[offering.reservation] = min(left.get(offering.reservation, capacity), capacity)
    return left


class ReservationLedger:
    """
    Counts reservations pessimistically: a claim holds every reservation that it may still use.
    """

    def __init__(self, capacities: Mapping[str, int]) -> None:
        self._left = dict(capacities)
        self._held: dict[int, set[str]] = {}

    def can_hold(self, claim: int, offering: Offering) -> bool:
        """Whether a claim holds the reservation of an offering or could."""
        if offering.reservation in self._held.get(claim, ()):
            return True
        return self._left[offering.reservation] > 0

    def hold(self, claim: int, offerings: Iterable[Offering]) -> None:
        """Let a claim hold exactly the reservations of these offerings."""
        wanted = {o.reservation for o in offerings}
        held = self._held.setdefault(claim, set())
        for each in wanted - held:
            self._left[each] -= 1
        for each in held - wanted:
            self._left[each] += 1
        self._held[claim] = wanted
