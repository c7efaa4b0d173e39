"""
Enqueues machines with DHCP addresses periodically: no event reports a changed lease.

Each pass of such a machine asks its guest agent once. The rate of passes is bounded however many
machines exist: one every six seconds at most, and each machine once a minute at most.
"""

from collections.abc import Callable, Iterable

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.clock import Clock
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key

ROUND_SECONDS = 60.0  # the shortest time between two passes of one machine
MIN_SECONDS = 6.0  # the shortest time between two passes of any machines


class DhcpAddressRefresher:
    """Enqueues machines with DHCP addresses one after the other."""

    def __init__(
        self, clock: Clock, machines: Cache[ProxmoxMachine], wake: Callable[[Key], None]
    ) -> None:
        self._clock, self._machines, self._wake = clock, machines, wake

    async def run(self) -> None:
        """Enqueue one machine after the other until cancelled."""
        last: Key | None = None
        while True:
            keys = [Key(m.namespace, m.name) for m in self._machines.list() if uses_dhcp(m)]
            last = choose_next(last, keys)
            if last is not None:
                self._wake(last)
            await self._clock.sleep(pause_seconds(len(keys)))


def uses_dhcp(machine: ProxmoxMachine) -> bool:
    """Whether the machine runs with addresses that come from no pool."""
    status, checks = machine.status, machine.spec.checks
    no_agent = bool(checks and checks.skip_qemu_guest_agent)
    runs = bool(status.initialization.provisioned) and status.power_state == "running"
    return runs and not no_agent and not status.ip_addresses and not machine.deleting


def choose_next(last: Key | None, keys: Iterable[Key]) -> Key | None:
    """The key after ``last`` in sorted order; the first one after the end."""
    known = sorted(keys)
    later = [key for key in known if last is None or key > last]
    return next(iter(later or known), None)


def pause_seconds(count: int) -> float:
    """Seconds until the next machine is enqueued."""
    return max(MIN_SECONDS, ROUND_SECONDS / count) if count else ROUND_SECONDS
