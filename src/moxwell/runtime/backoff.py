"""
How long to wait before trying again: per key, doubling; and per share, a bucket of tokens.

``Backoff`` remembers how often each key failed in a row. ``Bucket`` keeps a thousand keys that fail
at once from all coming back at once. Both answer a number of seconds and wait for nothing. There is
one bucket per share, not one for all: a region that is down uses up only its own tokens.
"""

import random
from collections.abc import Hashable
from dataclasses import dataclass

from moxwell.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The numbers of a backoff; the defaults suit a person who watches."""

    first_seconds: float = 0.05
    cap_seconds: float = 300.0
    jitter: float = 0.1  # up to this share is added, so that failures do not march in step
    per_second: float = 10.0  # retries of one share in the long run
    burst: int = 100  # and how many at once


class Bucket:
    """Tokens that refill at a steady rate; a debt is paid by waiting."""

    def __init__(self, clock: Clock, *, per_second: float, burst: int) -> None:
        self._clock, self._rate, self._burst = clock, per_second, float(burst)
        self._tokens = float(burst)
        self._at = clock.monotonic()

    def reserve(self) -> float:
        """Take a token, now or in advance; the seconds until it is really there."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)

    def take(self) -> bool:
        """A token if there is one now, without going into debt."""
        if self.reserve() <= 0:
            return True
        self._tokens += 1
        return False


class Backoff:
    """Failures in a row by key, and the wait that follows from them."""

    def __init__(self, clock: Clock, pace: Pace, rng: random.Random) -> None:
        self._clock, self._pace, self._rng = clock, pace, rng
        self._failures: dict[Hashable, int] = {}
        self._buckets: dict[str, Bucket] = {}

    def failed(self, key: Hashable, share: str = "") -> float:
        """Count one more failure; the seconds to wait before the next try."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        pace = self._pace
        own = min(pace.first_seconds * 2.0 ** min(count, 63), pace.cap_seconds)
        return max(own * (1 + pace.jitter * self._rng.random()), self._bucket(share).reserve())

    def failures(self, key: Hashable) -> int:
        """How often ``key`` failed since it last succeeded."""
        return self._failures.get(key, 0)

    def forget(self, key: Hashable) -> None:
        """``key`` succeeded or is gone: its next failure is its first."""
        self._failures.pop(key, None)

    def _bucket(self, share: str) -> Bucket:
        bucket = self._buckets.get(share)
        if bucket is None:
            pace = self._pace
            bucket = Bucket(self._clock, per_second=pace.per_second, burst=pace.burst)
            self._buckets[share] = bucket
        return bucket
