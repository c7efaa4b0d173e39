"""
Whose configuration others have changed since we last looked.

In: the region's list of recent tasks, one request however many guests there are. Out: the guests
that a task of somebody else may have given a disk. Changes through the web page and through most
tools are tasks. The surprise: not all are (``qm set`` on a host, a synchronous PUT), so the holders
are also read anew in rounds; see :mod:`moxwell.csi.attachments`.
"""

from moxwell.clock import Clock
from moxwell.pve.config import TokenAuth
from moxwell.pve.regions import Region

FRESH_SECONDS = 0.5  # calls that come together share a look
_TELLING = frozenset(
    {
        "qmconfig", "qmcreate", "qmclone", "qmrestore", "qmmove", "qmrollback", "qmstart",
        "vzcreate", "vzclone", "vzrestore", "vzrollback", "move_volume",
    }
)  # fmt: skip


class News:
    """What was seen of each region's tasks."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self._seen: dict[str, frozenset[str]] = {}
        self._looked: dict[str, float] = {}

    async def changed(self, region: Region) -> frozenset[int]:
        """The guests that others worked on since the last look."""
        if self._clock is not None:
            now = self._clock.monotonic()
            if now - self._looked.get(region.name, -FRESH_SECONDS) < FRESH_SECONDS:
                return frozenset()
            self._looked[region.name] = now
        ours = _user(region)
        rows = [
            row
            for row in await region.pve.cluster.tasks()
            if row.type in _TELLING and _asker(row.upid) != ours and row.id.isdigit()
        ]
        before = self._seen.get(region.name, frozenset())
        self._seen[region.name] = frozenset(row.upid for row in rows if not row.running)
        return frozenset(int(row.id) for row in rows if row.upid not in before)


def _asker(upid: str) -> str:
    """Who began a task: the whole token id; a row's ``user`` is without the token's name."""
    parts = upid.split(":")
    return parts[7] if len(parts) > 7 else ""


def _user(region: Region) -> str:
    auth = region.config.auth
    return auth.token_id if isinstance(auth, TokenAuth) else ""
