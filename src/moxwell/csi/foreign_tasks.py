"""
Finds guests that other users or tools have changed, from the region's list of recent tasks.

Costs one request for any number of guests. Some changes leave no task (``qm set`` on a host, a
synchronous PUT), so :mod:`moxwell.csi.attachments` also reads every guest periodically.
"""

from moxwell.clock import Clock
from moxwell.pve.config import TokenAuth
from moxwell.pve.regions import Region

MIN_INTERVAL_SECONDS = 0.5  # concurrent calls share one request
_RELEVANT_TASK_TYPES = frozenset(
    {
        "qmconfig", "qmcreate", "qmclone", "qmrestore", "qmmove", "qmrollback", "qmstart",
        "vzcreate", "vzclone", "vzrestore", "vzrollback", "move_volume",
    }
)  # fmt: skip


class ForeignTasks:
    """Remembers which tasks of each region were already processed."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self._processed: dict[str, frozenset[str]] = {}
        self._last_read: dict[str, float] = {}

    async def changed_guests(self, region: Region) -> frozenset[int]:
        """The guests that tasks of other users touched since the last call."""
        if self._clock is not None:
            now = self._clock.monotonic()
            if now - self._last_read.get(region.key, -MIN_INTERVAL_SECONDS) < MIN_INTERVAL_SECONDS:
                return frozenset()
            self._last_read[region.key] = now
        own_user = _own_user(region)
        rows = [
            row
            for row in await region.reader.cluster.tasks()
            if row.type in _RELEVANT_TASK_TYPES
            and _user_of(row.upid) != own_user
            and row.id.isdigit()
        ]
        before = self._processed.get(region.key, frozenset())
        self._processed[region.key] = frozenset(row.upid for row in rows if not row.running)
        return frozenset(int(row.id) for row in rows if row.upid not in before)


def _user_of(upid: str) -> str:
    """The user or full token id in a UPID; the ``user`` of a task row lacks the token name."""
    parts = upid.split(":")
    return parts[7] if len(parts) > 7 else ""


def _own_user(region: Region) -> str:
    auth = region.config.auth
    return auth.token_id if isinstance(auth, TokenAuth) else ""
