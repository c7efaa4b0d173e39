"""
Circuit breaker of a region: after some failures in a row, requests fail at once for a while.

Pure state; the transport reports successes and failures. When the pause is over, one request is let
through as a probe, and its result closes or reopens the breaker for all.
"""

from moxwell.clock import Clock

PAUSES_SECONDS = (2.0, 5.0, 10.0, 20.0, 30.0)


class Breaker:
    """Counts failures in a row; opens after ``threshold`` of them."""

    def __init__(self, clock: Clock, *, threshold: int = 3) -> None:
        self._clock = clock
        self._threshold = threshold
        self._failures = 0
        self._trips = 0
        self._open_until = 0.0
        self._probing = False

    @property
    def is_open(self) -> bool:
        """Report whether requests are refused now."""
        return self._trips > 0 and (self._probing or self.retry_after > 0)

    @property
    def retry_after(self) -> float:
        """Seconds until a request may try again."""
        return max(0.0, self._open_until - self._clock.monotonic())

    def enter(self) -> bool:
        """Report whether a request may be sent; after a pause the caller becomes the probe."""
        if self._trips == 0:
            return True
        if self.is_open:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        """Record that the region answered, with whatever status."""
        self._failures = self._trips = 0
        self._probing = False

    def failed(self) -> None:
        """Record that no URL of the region answered."""
        self._failures += 1
        if self._probing or self._failures >= self._threshold:
            pause = PAUSES_SECONDS[min(self._trips, len(PAUSES_SECONDS) - 1)]
            self._trips += 1
            self._failures = 0
            self._open_until = self._clock.monotonic() + pause
        self._probing = False

    def abandoned(self) -> None:
        """Record that the caller cancelled its request, which proves nothing."""
        self._probing = False
