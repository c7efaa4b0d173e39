"""
How long something has kept its value, by the monotonic clock and only while it is observed.

Timeouts of nodes and machines are counted here: neither a jump of a wall clock nor the time during
which this process was stopped or paused makes them expire. Counting begins at the first
observation, so a new process grants the whole timeout again.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from moxwell.clock import Clock

FORGET_SECONDS = 3600.0  # a key that has not been observed for this long is dropped


@dataclass(frozen=True, slots=True)
class _Observation:
    value: Hashable
    seconds: float
    at: float  # monotonic time of the last observation


class ObservedDurations:
    """
    Durations by key, in memory.

    Time between two observations that are more than ``longest_gap`` seconds apart is not counted:
    nothing was observed during it.
    """

    def __init__(self, clock: Clock, longest_gap: float) -> None:
        self._clock, self._longest_gap = clock, longest_gap
        self._observations: dict[Hashable, _Observation] = {}
        self._swept = clock.monotonic()

    def observe(self, key: Hashable, value: Hashable) -> float:
        """The seconds for which the key has been observed with this value."""
        now = self._clock.monotonic()
        self._sweep(now)
        last, seconds = self._observations.get(key), 0.0
        if last is not None and last.value == value:
            gap = now - last.at
            seconds = last.seconds + (gap if gap <= self._longest_gap else 0.0)
        self._observations[key] = _Observation(value, seconds, now)
        return seconds

    def restart(self, key: Hashable) -> None:
        """Count from now on."""
        if (last := self._observations.get(key)) is not None:
            self._observations[key] = _Observation(last.value, 0.0, self._clock.monotonic())

    def _sweep(self, now: float) -> None:
        if now - self._swept < FORGET_SECONDS:
            return
        self._swept = now
        kept = {k: o for k, o in self._observations.items() if now - o.at < FORGET_SECONDS}
        self._observations = kept
