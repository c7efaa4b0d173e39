"""
Limits how many pending pods one pass decides about.

Pods that were decided about least recently come first, so that pods that never fit do not keep the
others waiting. A pass that took too long halves the number of the next one.
"""

from collections.abc import Iterable, Mapping
from typing import Any

SMALLEST = 100


class BatchLimit:
    """Chooses pods for a pass; 0 means no limit until a pass takes too long."""

    def __init__(self, most: int = 0) -> None:
        self._most, self._reduced = most, 0
        self._passes: dict[str, int] = {}  # by UID, the last pass that decided about the pod
        self._number = 0

    @property
    def pods(self) -> int:
        """The most pods of the next pass; 0 for any number."""
        return self._reduced or self._most

    def too_long(self, pods: int) -> None:
        """A pass about so many pods was ended."""
        self._reduced = max(SMALLEST, pods // 2)

    def finished(self) -> None:
        """A pass ended in time; the next may be twice as large."""
        if self._reduced:
            self._reduced *= 2
        if self._most and self._reduced >= self._most:
            self._reduced = 0

    def choose(
        self, pending: Iterable[Mapping[str, Any]], *, advance: bool = True
    ) -> frozenset[str]:
        """The UIDs of the pods of a pass; ``advance`` remembers them as decided about."""
        waiting = {uid_of(p): p for p in pending}
        if not self.pods or len(waiting) <= self.pods:
            return frozenset(waiting)
        order = sorted(waiting, key=lambda uid: (self._passes.get(uid, 0), _age(waiting[uid]), uid))
        chosen = frozenset(order[: self.pods])
        if advance:
            self._number += 1
            self._passes = {u: n for u, n in self._passes.items() if u in waiting}
            self._passes |= dict.fromkeys(chosen, self._number)
        return chosen


def uid_of(pod: Mapping[str, Any]) -> str:
    """The UID of a pod."""
    return str(pod["metadata"]["uid"])


def _age(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"].get("creationTimestamp") or "")
