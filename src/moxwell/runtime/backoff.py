"""
Retry delays: exponential per key, and a token bucket per shard.

``Backoff`` counts consecutive failures per key. ``Bucket`` limits the rate at which many failing
keys return. Both return a number of seconds and never wait. Each shard has its own bucket, so a
region that is down uses only its own tokens.
"""

import random
from collections.abc import Hashable
from dataclasses import dataclass

from moxwell.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffSettings:
    """Settings of the backoff."""

    first_seconds: float = 0.05
    cap_seconds: float = 300.0
    jitter: float = 0.1  # jitter: up to this fraction is added
    per_second: float = 10.0  # sustained retries per second of one shard
    burst: int = 100  # burst size of one shard


class Bucket:
    """A token bucket that refills at a steady rate and may go into debt."""

    def __init__(self, clock: Clock, *, per_second: float, burst: int) -> None:
        self._clock, self._rate, self._burst = clock, per_second, float(burst)
        self._tokens = float(burst)
        self._at = clock.monotonic()

    def reserve(self) -> float:
        """Take a token now or in advance; returns the seconds until it is available."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)

    def take(self) -> bool:
        """Take a token only if one is available now."""
        if self.reserve() <= 0:
            return True
        self._tokens += 1
        return False


class Backoff:
    """Consecutive failures per key and the resulting delay."""

    def __init__(self, clock: Clock, backoff_settings: BackoffSettings, rng: random.Random) -> None:
        self._clock, self._pace, self._rng = clock, backoff_settings, rng
        self._failures: dict[Hashable, int] = {}
        self._buckets: dict[str, Bucket] = {}

    def failed(self, key: Hashable, shard: str = "") -> float:
        """Record a failure; returns the seconds until the next try."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        backoff_settings = self._pace
        own = min(
            backoff_settings.first_seconds * 2.0 ** min(count, 63), backoff_settings.cap_seconds
        )
        return max(
            own * (1 + backoff_settings.jitter * self._rng.random()), self._bucket(shard).reserve()
        )

    def failures(self, key: Hashable) -> int:
        """The number of failures of ``key`` since its last success."""
        return self._failures.get(key, 0)

    def forget(self, key: Hashable) -> None:
        """Reset the failure count of ``key``."""
        self._failures.pop(key, None)

    def _bucket(self, shard: str) -> Bucket:
        bucket = self._buckets.get(shard)
        if bucket is None:
            backoff_settings = self._pace
            bucket = Bucket(
                self._clock, per_second=backoff_settings.per_second, burst=backoff_settings.burst
            )
            self._buckets[shard] = bucket
        return bucket
