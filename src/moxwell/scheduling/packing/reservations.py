"""Reserved capacity that node claims of one run hold, by reservation."""

from collections.abc import Iterable

from moxwell.scheduling.packing.instance_types import InstanceType, Offering
from moxwell.scheduling.well_known_labels import RESERVED


class ReservationLedger:
    """
    Counts reservations pessimistically: a claim holds every reservation that it may still use.

    A reservation that several instance types list with different capacities has the smallest.
    """

    def __init__(self, types: Iterable[InstanceType]) -> None:
        self._left: dict[str, int] = {}
        self._held: dict[int, set[str]] = {}
        for each in types:
            for offering in each.offerings:
                if offering.capacity_type == RESERVED:
                    known = self._left.get(offering.reservation, offering.reservation_capacity)
                    self._left[offering.reservation] = min(known, offering.reservation_capacity)

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
