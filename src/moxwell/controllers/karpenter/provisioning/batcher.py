"""Collects pods before a scheduling pass, so that pods of one rollout are packed together."""

import asyncio

from moxwell.clock import Clock
from moxwell.controllers.karpenter.options import IDLE_SECONDS, MOST_SECONDS


class Batcher:
    """A window that ends when no new pod came for a while, or after the longest time."""

    def __init__(
        self, clock: Clock, *, idle: float = IDLE_SECONDS, most: float = MOST_SECONDS
    ) -> None:
        self._clock, self._idle, self._most = clock, idle, most
        self._triggered: set[str] = set()
        self._first = asyncio.Event()
        self._last = 0.0

    def trigger(self, uid: str) -> None:
        """A pod waits; a pod that is already part of the batch does not prolong it."""
        if uid in self._triggered:
            return
        self._triggered.add(uid)
        self._last = self._clock.monotonic()
        self._first.set()

    async def wait(self) -> frozenset[str]:
        """Wait for a first pod and for the end of the window; returns the UIDs of the batch."""
        await self._first.wait()
        opened = self._clock.monotonic()
        while (left := self._left(opened)) > 0:
            await self._clock.sleep(left)
        batch, self._triggered = frozenset(self._triggered), set()
        self._first.clear()
        return batch

    def _left(self, opened: float) -> float:
        end = min(self._last + self._idle, opened + self._most)
        return end - self._clock.monotonic()
