"""
Decides whether a pass leaves the status to a later one.

The steps of a creation change reasons, messages and observations every moment; most of what one
pass would write is replaced by the next. Such a change waits for some seconds. An urgent one is
written at once, or by the next pass if that follows at once. The delay is counted from the first
pass whose status was not written, however many passes follow.
"""

from moxwell.clock import Clock
from moxwell.runtime.key import Key

AT_ONCE_SECONDS = 0.1
URGENT_SECONDS = 1.0  # for an urgent status while passes follow each other at once
LONGEST_SECONDS = 5.0


class StatusDeferral:
    """Remembers since when the status of each object is not written."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[Key, float] = {}

    def seconds(self, key: Key, requeue_after: float | None, *, urgent: bool) -> float:
        """How long a changed status may wait, if the next pass is that far away; 0: write it."""
        at_once = requeue_after is not None and requeue_after <= AT_ONCE_SECONDS
        longest = LONGEST_SECONDS if not urgent else URGENT_SECONDS if at_once else 0.0
        now = self._clock.monotonic()
        left = self._since.setdefault(key, now) + longest - now
        if left <= 0:
            self.forget(key)
            return 0.0
        return left

    def forget(self, key: Key) -> None:
        """The status is written or unchanged, or the object is gone."""
        self._since.pop(key, None)
