"""
What went wrong lately with whom: a pause that grows, and the reason for a person to read.

In: ended tasks that failed. Out: how long to wait before the same is tried again. Memory only, and
only a hint: a restart tries at once, and success forgets. Nothing is ever given up for good.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from moxwell.clock import Clock
from moxwell.pve.errors import PveError
from moxwell.pve.tasks import Ended

FIRST_SECONDS, MOST_SECONDS = 2.0, 300.0


@dataclass(frozen=True, slots=True)
class Setback:
    """The last failure, how many there were in a row, and when to try again."""

    error: PveError
    count: int
    until: float


class Setbacks:
    """Failures by owner."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[Hashable, Setback] = {}

    def heard(self, ended: Ended) -> None:
        """A task ended; a good one is no reason to forget, as the next may fail."""
        if ended.error is None:
            return
        before = self._last.get(ended.owner)
        count = (before.count if before else 0) + 1
        pause = min(FIRST_SECONDS * 2 ** (count - 1), MOST_SECONDS)
        until = self._clock.monotonic() + pause
        self._last[ended.owner] = Setback(ended.error, count, until)

    def find(self, owner: Hashable) -> Setback | None:
        """The last failure of somebody, if he has had no success since."""
        return self._last.get(owner)

    def seconds_left(self, owner: Hashable) -> float:
        """How long to wait still."""
        found = self._last.get(owner)
        return max(0.0, found.until - self._clock.monotonic()) if found else 0.0

    def forget(self, owner: Hashable) -> None:
        """It went well."""
        self._last.pop(owner, None)
