"""Token buckets of size one: how often evictions and remediations may happen in each zone."""

from collections.abc import Hashable
from dataclasses import dataclass

from moxwell.clock import Clock


@dataclass(frozen=True, slots=True)
class _Bucket:
    tokens: float
    at: float  # monotonic time


class TokenBuckets:
    """One bucket per key; each holds at most one token and is filled at the rate of the caller."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[Hashable, _Bucket] = {}

    def available(self, key: Hashable, rate: float) -> bool:
        """Whether ``take`` would succeed; never for a rate of zero."""
        return rate > 0 and self._filled(key, rate).tokens >= 1

    def take(self, key: Hashable, rate: float) -> bool:
        """Take a token if there is one."""
        bucket = self._filled(key, rate)
        taken = rate > 0 and bucket.tokens >= 1
        left = bucket.tokens - 1 if taken else bucket.tokens
        self._buckets[key] = _Bucket(left, bucket.at)
        return taken

    def _filled(self, key: Hashable, rate: float) -> _Bucket:
        now = self._clock.monotonic()
        bucket = self._buckets.get(key, _Bucket(1.0, now))
        return _Bucket(min(1.0, bucket.tokens + (now - bucket.at) * rate), now)
