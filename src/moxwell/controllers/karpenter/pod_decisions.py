"""When the autoscaler first saw a pending pod, decided about it, and found a place for it."""

from collections.abc import Iterable
from datetime import datetime

from moxwell.clock import Clock


class PodDecisionTimes:
    """Times of pods by ``namespace/name``, in memory; one object per scaled cluster."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, datetime] = {}
        self._decided: dict[str, datetime] = {}
        self._placeable: dict[str, datetime] = {}

    def seen(self, pod: str) -> None:
        """A pod waits for a node."""
        self._seen.setdefault(pod, self._clock.now())

    def decided(self, pods: Iterable[str], failed: frozenset[str]) -> list[float]:
        """
        A pass decided about pods, of which some have no place.

        Returns the seconds from seeing to deciding of those that were decided about first.
        """
        now, first = self._clock.now(), []
        for pod in pods:
            if pod not in self._decided:
                first.append((now - self._seen.setdefault(pod, now)).total_seconds())
                self._decided[pod] = now
            if pod in failed:
                self._placeable.pop(pod, None)
            else:
                self._placeable.setdefault(pod, now)
        return first

    def undecided_since(self, pod: str) -> datetime | None:
        """When a pod was seen that no pass has decided about."""
        return None if pod in self._decided else self._seen.get(pod)

    def placeable_since(self, pod: str) -> datetime | None:
        """When a place was first found for a pod that has had one since."""
        return self._placeable.get(pod)

    def forget(self, pod: str) -> None:
        """A pod runs, or was deleted."""
        for times in (self._seen, self._decided, self._placeable):
            times.pop(pod, None)
