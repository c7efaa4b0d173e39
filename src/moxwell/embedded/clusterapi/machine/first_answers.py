"""
Which clusters have answered since this process started.

After a start the API of a cluster needs some seconds. Until its first answer, and for a minute at
most, what is known of its nodes stays as it is, as in Cluster API after a lost connection.
"""

from moxwell.clock import Clock
from moxwell.runtime.key import Key

GRACE_SECONDS = 60.0


class FirstAnswers:
    """Remembers the clusters that answered; one object per process."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._end = clock, clock.monotonic() + GRACE_SECONDS
        self._answered: set[Key] = set()

    def answered(self, cluster: Key) -> None:
        """A cluster has answered; later silence means something."""
        self._answered.add(cluster)

    def is_awaited(self, cluster: Key) -> bool:
        """Whether the first answer of a cluster may still come."""
        return cluster not in self._answered and self._clock.monotonic() < self._end
