"""
The order in which new node claims are tried: fewest pods first, equal ones as Go leaves them.

Sorting again after one claim got a pod mostly moves that claim behind those with as few pods as it
had; that move is made directly. The sort itself runs when a sample of its pivot is out of order.
"""

from bisect import bisect_left, bisect_right

from moxwell.scheduling.packing.go_sort import sort_slice

_INSERTION = 12
_SHIFTS = 50


class ClaimOrder:
    """Numbers of claims by number of pods."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._counts: list[int] = []
        self._changed: int | None = None

    def append(self, number: int) -> None:
        """A new claim with one pod; it is put in order before the next pod."""
        self.numbers.append(number)
        self._counts.append(1)
        self._changed = len(self.numbers) - 1

    def grew(self, place: int) -> None:
        """The claim at a place got a pod."""
        self._counts[place] += 1
        self._changed = place

    def sort(self) -> list[int]:
        """The claims in order."""
        place, self._changed = self._changed, None
        if place is None or self._in_order(place):
            return self.numbers
        size = len(self.numbers)
        if size <= _INSERTION or (size >= _SHIFTS and not self._sampled(place, size)):
            self._move(place)
        else:
            sort_slice(self._counts, self.numbers)
        return self.numbers

    def _in_order(self, place: int) -> bool:
        counts = self._counts
        after = place + 1 >= len(counts) or counts[place] <= counts[place + 1]
        return after and (place == 0 or counts[place - 1] <= counts[place])

    def _sampled(self, place: int, size: int) -> bool:
        """Whether the sort looks at the changed claim when it chooses a pivot."""
        quarter = size // 4
        return any(abs(place - quarter * n) <= 1 for n in (1, 2, 3))

    def _move(self, place: int) -> None:
        """Put the changed claim where a stable sort would."""
        number, count = self.numbers.pop(place), self._counts.pop(place)
        find = bisect_right if place == len(self.numbers) else bisect_left
        target = find(self._counts, count)
        self.numbers.insert(target, number)
        self._counts.insert(target, count)
