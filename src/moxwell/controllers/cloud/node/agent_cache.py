"""
What guest agents said, kept so that asking again costs no more with a thousand nodes than with ten.

In: a guest, and a way to ask its agent. Out: its addresses. A region's agents together are asked at
most once in ``EACH_SECONDS``: a guest's answer is good for as many of these as guests are known, so
every guest has its turn. The surprise: a guest that was restarted, moved or renamed is asked at
once, and so is one that is new or whose agent was silent; only what has settled is kept.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from moxwell.clock import Clock
from moxwell.pve.model import GuestSeen

EACH_SECONDS = 1.0
FORGET_SECONDS = 6 * 3600.0
Addresses = tuple[tuple[str, str], ...]
Ask = Callable[[], Awaitable[Addresses | None]]  # None: the agent is silent


@dataclass(frozen=True, slots=True)
class Said:
    """An answer: when, by which guest as it was then, and what."""

    at: float
    guest: GuestSeen
    addresses: Addresses


class Sayings:
    """The last answer of each guest."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said: dict[str, dict[int, Said]] = {}  # by region and VMID

    async def addresses(
        self, region: str, guest: GuestSeen, ask: Ask, *, fresh: bool
    ) -> Addresses | None:
        """The kept answer while it is good and nothing says otherwise; else a new one."""
        known, now = self._said.setdefault(region, {}), self._clock.monotonic()
        said = known.get(guest.vmid)
        if said is not None and not fresh and self._is_good(said, guest, len(known), now):
            return said.addresses
        found = await ask()
        known.pop(guest.vmid, None)
        if found is not None:
            known[guest.vmid] = Said(now, guest, found)
        self._forget(known, now)
        return found

    def _is_good(self, said: Said, guest: GuestSeen, count: int, now: float) -> bool:
        restarted = guest.uptime_seconds < said.guest.uptime_seconds
        moved = (guest.host, guest.name, guest.status) != (
            said.guest.host,
            said.guest.name,
            said.guest.status,
        )
        return now - said.at < count * EACH_SECONDS and not restarted and not moved

    def _forget(self, known: dict[int, Said], now: float) -> None:
        """Guests nobody asked about for hours are no nodes any more; the oldest come first."""
        oldest = next(iter(known), None)
        while oldest is not None and now - known[oldest].at > FORGET_SECONDS:
            del known[oldest]
            oldest = next(iter(known), None)
