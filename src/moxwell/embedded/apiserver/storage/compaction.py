"""
Decides up to which revision the history is compacted; pure.

History is kept for some minutes, as kube-apiserver keeps it, and up to a number of bytes. Marks
(revision and time, once a minute) are stored with the log, so that a process that restarts often
also compacts.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class HistoryMark(NamedTuple):
    """The revision of the log at a time in Unix seconds."""

    revision: int
    seconds: float


def advance(
    marks: Sequence[HistoryMark], revision: int, now: float, keep_seconds: float
) -> tuple[tuple[HistoryMark, ...], int]:
    """
    Add a mark; returns the marks to keep and the revision to compact to, 0 for none.

    A mark in the future is from before the clock was set back; it counts from now.
    """
    known = [HistoryMark(m.revision, min(m.seconds, now)) for m in marks]
    if not known or known[-1].revision != revision:
        known.append(HistoryMark(revision, now))
    old = [m for m in known if m.seconds <= now - keep_seconds]
    if not old:
        return tuple(known), 0
    floor = old[-1].revision
    return tuple(m for m in known if m.revision > floor), floor


class HistoryWindow:
    """The size of the history above the floor, in bytes."""

    def __init__(self) -> None:
        self._sizes: deque[tuple[int, int]] = deque()
        self.bytes = 0

    def add(self, changes: Iterable[tuple[int, int]]) -> None:
        """Add revisions and their sizes, in order."""
        for revision, size in changes:
            self._sizes.append((revision, size))
            self.bytes += size

    def drop(self, floor: int) -> None:
        """Forget the revisions up to the floor."""
        while self._sizes and self._sizes[0][0] <= floor:
            self.bytes -= self._sizes.popleft()[1]

    def choose_floor(self, max_bytes: int) -> int:
        """Return the revision to compact to, so that half of the limit remains; 0 below it."""
        if self.bytes <= max_bytes:
            return 0
        left, floor = self.bytes, 0
        for revision, size in self._sizes:
            if left <= max_bytes // 2:
                break
            left, floor = left - size, revision
        return floor


def next_alarm(raised: bool, *, used: int, quota: int) -> bool:
    """Whether writes are refused: above the quota, and until a tenth of it is free again."""
    return used > quota or (raised and used > quota - quota // 10)
