"""
On which nodes pods are expected soon, in memory and for a limited time.

A nominated node is no candidate for disruption. After a restart the next scheduling pass nominates
again.
"""

from collections.abc import Iterable

from moxwell.clock import Clock

NOMINATION_SECONDS = 20.0  # twice the longest batch


class Nominations:
    """Node names with the time until which they are nominated."""

    def __init__(self, clock: Clock, seconds: float = NOMINATION_SECONDS) -> None:
        self._clock, self._seconds = clock, seconds
        self._until: dict[str, float] = {}

    def nominate(self, nodes: Iterable[str]) -> None:
        """Expect pods on these nodes from now on."""
        until = self._clock.monotonic() + self._seconds
        self._until.update(dict.fromkeys(nodes, until))

    def current(self) -> frozenset[str]:
        """The names of the nodes that are nominated now."""
        now = self._clock.monotonic()
        self._until = {name: until for name, until in self._until.items() if until > now}
        return frozenset(self._until)
