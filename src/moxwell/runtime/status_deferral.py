"""
Decides whether a pass leaves the status to the next one.

After an effect the next pass follows at once and sees its result; most of what the first one would
write is replaced then. A status is deferred for a second at most, however many passes follow.
"""

from moxwell.clock import Clock
from moxwell.runtime.key import Key

AT_ONCE_SECONDS = 0.1
LONGEST_SECONDS = 1.0


class StatusDeferral:
    """Remembers since when the status of each object is not written."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[Key, float] = {}

    def defers(self, key: Key, requeue_after: float | None) -> bool:
        """Whether a pass that is followed by another after so many seconds writes no status."""
        if requeue_after is None or requeue_after > AT_ONCE_SECONDS:
            self.forget(key)
            return False
        now = self._clock.monotonic()
        if now - self._since.setdefault(key, now) < LONGEST_SECONDS:
            return True
        self.forget(key)
        return False

    def forget(self, key: Key) -> None:
        """The status is written, or the object is gone."""
        self._since.pop(key, None)
