"""
Spot guests and capacity needs of all scaled clusters of this process. In memory.

Each cluster reports its own; each decides with the guests and needs of all, so that all of them
decide the same. A deleted guest counts as being deleted until every need was computed again with
the capacity that it freed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from moxwell.clock import Clock
from moxwell.runtime.key import Key
from moxwell.scheduling.spot_room import RoomNeed, SpotGuest

REPORT_SECONDS = 60.0
SETTLE_SECONDS = 45.0


@dataclass(frozen=True, slots=True)
class _Report:
    until: float
    guests: tuple[SpotGuest, ...]
    needs: tuple[RoomNeed, ...] = ()


class SpotBoard:
    """Spot guests and needs of all clusters of a process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reports: dict[Key, _Report] = {}
        self._gone: dict[str, tuple[float, SpotGuest]] = {}

    def report(self, cluster: Key, guests: Iterable[SpotGuest]) -> None:
        """Replace the guests of a cluster."""
        now, known = self._clock.monotonic(), tuple(guests)
        before = self._reports.get(cluster, _Report(now, ()))
        left = {g.claim: g for g in before.guests if g.leaving}
        for claim in left.keys() - {g.claim for g in known}:
            self._gone[claim] = (now + SETTLE_SECONDS, left[claim])
        self._reports[cluster] = replace(before, until=now + REPORT_SECONDS, guests=known)

    def need(self, cluster: Key, needs: Iterable[RoomNeed]) -> None:
        """Replace the needs of a cluster that has reported its guests."""
        self._reports[cluster] = replace(self._reports[cluster], needs=tuple(needs))

    def guests(self) -> tuple[SpotGuest, ...]:
        """The guests of all clusters, and those that are gone for a short time."""
        now = self._clock.monotonic()
        self._gone = {claim: entry for claim, entry in self._gone.items() if entry[0] > now}
        gone = tuple(guest for _, guest in self._gone.values())
        return (*(g for report in self._current() for g in report.guests), *gone)

    def needs(self) -> tuple[RoomNeed, ...]:
        """The needs of all clusters."""
        return tuple(need for report in self._current() for need in report.needs)

    def _current(self) -> tuple[_Report, ...]:
        now = self._clock.monotonic()
        self._reports = {c: r for c, r in self._reports.items() if r.until > now}
        return tuple(self._reports[c] for c in sorted(self._reports))
