"""
The order in which new node claims are tried: fewest pods first, equal ones as Go leaves them.

Sorting again after one claim got a pod mostly moves that claim behind those with as few pods as it
had; that move is made directly. The sort itself runs when a sample of its pivot is out of order.
"""

import numpy as np
from numpy.typing import NDArray

from moxwell.scheduling.packing.go_sort import sort_slice

_INSERTION = 12
_SHIFTS = 50
_FIRST_ROOM = 64


class ClaimOrder:
    """Numbers of claims by number of pods."""

    def __init__(self) -> None:
        self._numbers: NDArray[np.int64] = np.zeros(_FIRST_ROOM, np.int64)
        self._counts: NDArray[np.int64] = np.zeros(_FIRST_ROOM, np.int64)
        self._size = 0
        self._changed: int | None = None

    def append(self, number: int) -> None:
        """A new claim with one pod; it is put in order before the next pod."""
        if self._size == len(self._numbers):
            self._numbers = np.concatenate((self._numbers, np.zeros_like(self._numbers)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._numbers[self._size] = number
        self._counts[self._size] = 1
        self._changed = self._size
        self._size += 1

    def grew(self, place: int) -> None:
        """The claim at a place got a pod."""
        self._counts[place] += 1
        self._changed = place

    def sort(self) -> NDArray[np.int64]:
        """The claims in order."""
        place, self._changed = self._changed, None
        size = self._size
        if place is not None and not self._in_order(place):
            if size <= _INSERTION or (size >= _SHIFTS and not self._sampled(place)):
                self._move(place)
            else:
                self._sort_all()
        return self._numbers[:size]

    def _in_order(self, place: int) -> bool:
        counts, own = self._counts, self._counts[place]
        after = place + 1 >= self._size or own <= counts[place + 1]
        return bool(after and (place == 0 or counts[place - 1] <= own))

    def _sampled(self, place: int) -> bool:
        """Whether the sort looks at the changed claim when it chooses a pivot."""
        quarter = self._size // 4
        return any(abs(place - quarter * n) <= 1 for n in (1, 2, 3))

    def _sort_all(self) -> None:
        numbers, counts = self._numbers[: self._size], self._counts[: self._size]
        keys, items = counts.tolist(), numbers.tolist()
        sort_slice(keys, items)
        numbers[:] = items
        counts[:] = keys

    def _move(self, place: int) -> None:
        """Put the changed claim where a stable sort would."""
        numbers, counts = self._numbers, self._counts
        number, count = numbers[place], counts[place]
        if place == self._size - 1:
            target = int(counts[:place].searchsorted(count, "right"))
            numbers[target + 1 : place + 1] = numbers[target:place]
            counts[target + 1 : place + 1] = counts[target:place]
        else:
            others = counts[place + 1 : self._size]
            target = place + int(others.searchsorted(count, "left"))
            numbers[place:target] = numbers[place + 1 : target + 1]
            counts[place:target] = counts[place + 1 : target + 1]
        numbers[target] = number
        counts[target] = count
