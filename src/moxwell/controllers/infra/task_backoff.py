"""
Back-off after failed Proxmox tasks, per ProxmoxMachine, in memory.

Task events feed it; ``see`` reads it. It is a hint: a restart retries at once. A failure is
forgotten when the machine makes progress, when the machine is deleted, or after an hour.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from moxwell.clock import Clock
from moxwell.errors import Terminal
from moxwell.pve.errors import PveError
from moxwell.pve.tasks import TaskEnded

FIRST_SECONDS, MAX_SECONDS = 2.0, 300.0
EXPIRY_SECONDS = 3600.0  # a later failure starts a new series


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """The last failed task: its error, the number of failures in a row, the time of the retry."""

    error: PveError
    count: int
    until: float  # of the monotonic clock


class TaskBackoff:
    """The last task failure of each owner."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[Hashable, TaskFailure] = {}

    def task_ended(self, ended: TaskEnded) -> None:
        """Count a failed task; a successful one changes nothing, because the next may fail."""
        if ended.error is None:
            return
        before = self.find(ended.owner)
        count = (before.count if before else 0) + 1
        most = ended.error.retry_seconds if isinstance(ended.error, Terminal) else None
        seconds = min(FIRST_SECONDS * 2 ** (count - 1), most or MAX_SECONDS)
        until = self._clock.monotonic() + seconds
        self._failures[ended.owner] = TaskFailure(ended.error, count, until)

    def find(self, owner: Hashable) -> TaskFailure | None:
        """The last failure of an owner that has made no progress since."""
        found = self._failures.get(owner)
        if found is not None and self._clock.monotonic() - found.until > EXPIRY_SECONDS:
            return None
        return found

    def seconds_left(self, owner: Hashable) -> float:
        """Seconds until the retry."""
        found = self.find(owner)
        return max(0.0, found.until - self._clock.monotonic()) if found else 0.0

    def forget(self, owner: Hashable) -> None:
        """Forget the failures of an owner that has made progress or is deleted."""
        self._failures.pop(owner, None)
