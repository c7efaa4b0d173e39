"""
Addresses that DHCP gave may change while nothing else does: machines that have such are looked at
in turn.

In flow the machines, out flow wakes. However many there are, so many looks a minute and no more;
few machines are looked at once a minute each. A look at such a machine asks its guest agent once,
so the load on Proxmox is bounded by the same figure.
"""

from collections.abc import Callable, Iterable

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.clock import Clock
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key

ROUND_SECONDS = 60.0  # one machine is not looked at more often
LEAST_SECONDS = 6.0  # between two looks, however many machines there are


class Leases:
    """Wakes machines whose addresses nobody else tells of."""

    def __init__(
        self, clock: Clock, machines: Cache[ProxmoxMachine], wake: Callable[[Key], None]
    ) -> None:
        self._clock, self._machines, self._wake = clock, machines, wake

    async def run(self) -> None:
        """One after the other, for as long as it runs."""
        last: Key | None = None
        while True:
            keys = [Key(m.namespace, m.name) for m in self._machines.list() if is_leased(m)]
            last = choose_next(last, keys)
            if last is not None:
                self._wake(last)
            await self._clock.sleep(pause_seconds(len(keys)))


def is_leased(obj: ProxmoxMachine) -> bool:
    """Does it live, with addresses that no pool gave?"""
    status, checks = obj.status, obj.spec.checks
    silent = bool(checks and checks.skip_qemu_guest_agent)
    lives = bool(status.initialization.provisioned) and status.power_state == "running"
    return lives and not silent and not status.ip_addresses and not obj.deleting


def choose_next(last: Key | None, keys: Iterable[Key]) -> Key | None:
    """The one after the last, in the order of names, and round again."""
    known = sorted(keys)
    later = [key for key in known if last is None or key > last]
    return next(iter(later or known), None)


def pause_seconds(count: int) -> float:
    """Until the next look."""
    return max(LEAST_SECONDS, ROUND_SECONDS / count) if count else ROUND_SECONDS
