"""The capacity that pods need, as the last provisioning pass computed it. In memory."""

from collections.abc import Iterable

from moxwell.clock import Clock
from moxwell.scheduling.spot_room import RoomNeed

KEPT_SECONDS = 30.0  # a pass is due every ten seconds while pods wait


class PodNeeds:
    """What the last pass found; forgotten if no further pass follows."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = 0.0
        self._needs: tuple[RoomNeed, ...] = ()

    def found(self, needs: Iterable[RoomNeed]) -> None:
        """Replace the needs by those of a new pass."""
        self._needs, self._until = tuple(needs), self._clock.monotonic() + KEPT_SECONDS

    def current(self) -> tuple[RoomNeed, ...]:
        return self._needs if self._clock.monotonic() < self._until else ()
