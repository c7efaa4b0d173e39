"""
When the API of each cluster last answered.

The API of a cluster is away for some seconds when this process starts and when its control plane is
upgraded. For a minute without an answer what is known of its nodes stays as it is; Cluster API does
the same for five.
"""

from moxwell.clock import Clock
from moxwell.runtime.key import Key

GRACE_SECONDS = 60.0


class ClusterAnswers:
    """Remembers the last answer of each cluster; the start of this process counts as one."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._start = clock, clock.monotonic()
        self._last: dict[Key, float] = {}

    def answered(self, cluster: Key) -> None:
        """A cluster has answered now."""
        self._last[cluster] = self._clock.monotonic()

    def is_awaited(self, cluster: Key) -> bool:
        """Whether an answer may still come soon."""
        last = self._last.get(cluster, self._start)
        return self._clock.monotonic() - last < GRACE_SECONDS
