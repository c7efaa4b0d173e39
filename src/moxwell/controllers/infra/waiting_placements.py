"""Machines that wait for a host, as the last pass saw it. In memory; a pass fills it again."""

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.clock import Clock
from moxwell.runtime.key import Key
from moxwell.scheduling.simulate import PlacementInput

KEPT_SECONDS = 60.0  # a machine that waits is seen more often


class WaitingPlacements:
    """What the placement of machines without a host depends on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[Key, tuple[float, PlacementInput]] = {}

    def note(self, machine: ProxmoxMachine, given: PlacementInput | None) -> None:
        """Keep what a pass has read for a machine."""
        if given is not None:
            key = Key(machine.namespace, machine.name)
            self._seen[key] = (self._clock.monotonic() + KEPT_SECONDS, given)

    def current(self) -> dict[Key, PlacementInput]:
        """What was read a short time ago; some of these machines have a host by now."""
        now = self._clock.monotonic()
        self._seen = {key: entry for key, entry in self._seen.items() if entry[0] > now}
        return {key: given for key, (_, given) in self._seen.items()}
