"""
The last reported state of each hosted control plane.

A ``ControlPlaneRunner`` reports a state only as the result of ``ensure``; ``ControlPlaneStates``
keeps the report, so that the controller can read it before it decides.
"""

from collections import Counter

from moxwell.clock import Clock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import (
    ControlPlaneRunner,
    HostedControlPlane,
    HostedControlPlaneSpec,
)
from moxwell.runtime.key import Key

STATE_SECONDS = 290.0  # an older report is not used: the runner is asked again


class ControlPlaneStates:
    """Calls the runner and keeps its reports, each with the spec that it was reported for."""

    def __init__(self, runner: ControlPlaneRunner, clock: Clock) -> None:
        self._runner, self._clock = runner, clock
        self._states: dict[Key, tuple[float, HostedControlPlaneSpec, HostedControlPlane]] = {}
        self._changes: Counter[Key] = Counter()

    def find(self, spec: HostedControlPlaneSpec) -> HostedControlPlane | None:
        """The last report for exactly this spec; None if there is none or it is outdated."""
        known = self._states.get(spec.key)
        if known is None or known[1] != spec:
            return None
        return known[2] if self._clock.monotonic() - known[0] < STATE_SECONDS else None

    def forget(self, key: Key) -> None:
        """Drop the report of a control plane whose state has changed."""
        self._changes[key] += 1
        self._states.pop(key, None)

    async def ensure(self, spec: HostedControlPlaneSpec) -> None:
        """Start or change a control plane and keep the report, unless it changes meanwhile."""
        self.forget(spec.key)
        change = self._changes[spec.key]
        state = await self._runner.ensure(spec)
        if self._changes[spec.key] == change:
            self._states[spec.key] = (self._clock.monotonic(), spec, state)

    async def sleep(self, key: Key) -> None:
        self.forget(key)
        await self._runner.sleep(key)

    async def destroy(self, key: Key) -> None:
        await self._runner.destroy(key)
        self._states.pop(key, None)
        self._changes.pop(key, None)
