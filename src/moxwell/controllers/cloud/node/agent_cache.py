"""
Cache of the addresses that guest agents report.

The agents of a region together are asked at most once per ``SECONDS_PER_GUEST``: an answer stays
valid for that many seconds times the number of known guests. A guest that is new, was restarted,
migrated or renamed, or whose agent did not answer, is asked at once.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from moxwell.clock import Clock
from moxwell.pve.model import ObservedGuest

SECONDS_PER_GUEST = 1.0
EXPIRY_SECONDS = 6 * 3600.0
InterfaceAddresses = tuple[tuple[str, str], ...]  # interface, address
AskAgent = Callable[[], Awaitable[InterfaceAddresses | None]]  # None: the agent does not answer


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """What an agent reported, when, and the guest as it was then."""

    at: float
    guest: ObservedGuest
    addresses: InterfaceAddresses


class AgentAddressCache:
    """The last answer of each guest's agent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: dict[str, dict[int, AgentAnswer]] = {}  # by region and VMID

    async def addresses(
        self, region: str, guest: ObservedGuest, ask: AskAgent, *, fresh: bool
    ) -> InterfaceAddresses | None:
        """The cached answer while it is valid, else a new one."""
        known, now = self._answers.setdefault(region, {}), self._clock.monotonic()
        answer = known.get(guest.vmid)
        if answer is not None and not fresh and _is_valid(answer, guest, len(known), now):
            return answer.addresses
        found = await ask()
        known.pop(guest.vmid, None)
        if found is not None:
            known[guest.vmid] = AgentAnswer(now, guest, found)
        _expire(known, now)
        return found


def _is_valid(answer: AgentAnswer, guest: ObservedGuest, count: int, now: float) -> bool:
    before = answer.guest
    restarted = guest.uptime_seconds < before.uptime_seconds
    changed = (guest.host, guest.name, guest.status) != (before.host, before.name, before.status)
    return now - answer.at < count * SECONDS_PER_GUEST and not restarted and not changed


def _expire(known: dict[int, AgentAnswer], now: float) -> None:
    """Drop guests that nobody asked about for hours; the oldest answers come first."""
    oldest = next(iter(known), None)
    while oldest is not None and now - known[oldest].at > EXPIRY_SECONDS:
        del known[oldest]
        oldest = next(iter(known), None)
