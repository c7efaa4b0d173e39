"""
Positions of guests in the drawing of a host, in cells of 8 GiB memory.

A host has one block, or one for each NUMA node if its host agent published them; each is a grid 8
cells high. A guest that is bound to a NUMA node is in the block of that node. A new guest gets the
first free rectangle of its shape, column by column. Guests never move, so that a user finds them
again. If no rectangle is free, the guest overlaps others as little as possible.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

CELL_MIB = 8 * 1024
ROWS = 8


@dataclass(frozen=True, slots=True, order=True)
class GridPosition:
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
    """The number of columns of a block with this memory."""
    return max(1, -(-memory_mib // (CELL_MIB * ROWS)))


def shape(memory_mib: int) -> tuple[int, int]:
    """Columns and rows of a guest: 8 GiB 1x1, 16 1x2, 32 2x2, 64 2x4, more in higher columns."""
    cells = max(1, -(-memory_mib // CELL_MIB))
    if cells <= 2:
        return 1, cells
    if cells <= 16:
        return 2, -(-cells // 2)
    wide = -(-cells // ROWS)
    return wide, -(-cells // wide)


@dataclass(frozen=True, slots=True)
class GuestArea:
    """The memory of a guest, and the block it must be in, if any."""

    memory_mib: int
    block: int | None = None


class Layout:
    """Keeps the positions of the guests of one host."""

    def __init__(self, block_columns: tuple[int, ...]) -> None:
        self._columns = block_columns
        self._positions: dict[str, tuple[GuestArea, GridPosition]] = {}

    def place(self, guests: Mapping[str, GuestArea]) -> Mapping[str, GridPosition]:
        """Positions for guests by key; known ones keep theirs, then the largest of the new ones."""
        for key in [k for k, (size, _) in self._positions.items() if guests.get(k) != size]:
            del self._positions[key]
        new = guests.keys() - self._positions.keys()
        for key in sorted(new, key=lambda k: (-guests[k].memory_mib, k)):
            self._positions[key] = guests[key], self._find(guests[key])
        return {key: place for key, (_, place) in self._positions.items()}

    def _find(self, size: GuestArea) -> GridPosition:
        """The position with the least overlap; then in the emptier block, left and top first."""
        taken = {cell for _, place in self._positions.values() for cell in place.cells()}
        used = Counter(block for block, _, _ in taken)
        return min(self._candidates(size), key=lambda p: (len(p.cells() & taken), used[p.block], p))

    def _candidates(self, size: GuestArea) -> Iterable[GridPosition]:
        w, h = shape(size.memory_mib)
        for block, wide in enumerate(self._columns):
            if size.block not in (None, block):
                continue
            width = min(w, wide)
            for x in range(wide - width + 1):
                for y in range(ROWS - h + 1):
                    yield GridPosition(block, x, y, width, h)
