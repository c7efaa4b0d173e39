"""
Where a guest is drawn on its host: cells of 8 GiB that it keeps for life.

A host is one or more blocks (a block is a socket), each a grid 8 cells high. A new guest takes the
first free rectangle of its shape, column by column; one that leaves frees its cells; nothing else
ever moves, so that the reader's eye finds a guest where it was. A guest that fits nowhere as a
rectangle is laid on the least covered place and says so by overlapping.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

CELL_MIB = 8 * 1024
ROWS = 8


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Cells of one block: column, row, and how many of each."""

    block: int
    x: int
    y: int
    w: int
    h: int

    def cells(self) -> frozenset[tuple[int, int, int]]:
        """Every cell it covers."""
        return frozenset(
            (self.block, x, y)
            for x in range(self.x, self.x + self.w)
            for y in range(self.y, self.y + self.h)
        )


def columns(memory_mib: int) -> int:
    """How many columns a block of this size has."""
    return max(1, -(-memory_mib // (CELL_MIB * ROWS)))


def shape(memory_mib: int) -> tuple[int, int]:
    """Columns and rows of a guest: 8 GiB 1x1, 16 1x2, 32 2x2, 64 2x4, more in whole columns."""
    cells = max(1, -(-memory_mib // CELL_MIB))
    if cells <= 2:
        return 1, cells
    if cells <= 16:
        return 2, -(-cells // 2)
    return -(-cells // ROWS), ROWS


class Layout:
    """Remembers the places of the guests of one host."""

    def __init__(self, block_columns: tuple[int, ...]) -> None:
        self._columns = block_columns
        self._places: dict[str, tuple[int, Place]] = {}

    def place(self, guests: Mapping[str, int]) -> Mapping[str, Place]:
        """Places for guests (key to MiB): the old ones kept, the new ones found in key order."""
        for key in [k for k, (mib, _) in self._places.items() if guests.get(k) != mib]:
            del self._places[key]
        for key in sorted(guests.keys() - self._places.keys()):
            self._places[key] = guests[key], self._find(guests[key])
        return {key: place for key, (_, place) in self._places.items()}

    def _find(self, memory_mib: int) -> Place:
        """Where it covers least; then in the emptier block; then from the left and the top."""
        taken = {cell for _, place in self._places.values() for cell in place.cells()}
        used = Counter(block for block, _, _ in taken)
        return min(
            self._candidates(memory_mib), key=lambda p: (len(p.cells() & taken), used[p.block], p)
        )

    def _candidates(self, memory_mib: int) -> Iterable[Place]:
        w, h = shape(memory_mib)
        for block, wide in enumerate(self._columns):
            width = min(w, wide)
            for x in range(wide - width + 1):
                for y in range(ROWS - h + 1):
                    yield Place(block, x, y, width, h)
