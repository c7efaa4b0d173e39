"""
Power: start, shut down, stop, reboot.

The surprise: Proxmox accepts the start of a running guest and fails it later in a task; so the
state is asked of the guest's own host first, in the same request that shows its mark.
"""

from moxwell.pve import errors
from moxwell.pve.client import PveWriter
from moxwell.pve.endpoints.guest import GuestStatus
from moxwell.pve.steps.contract import Expectation, GuestStep, own_status
from moxwell.pve.values import Upid


def _unlocked(step: GuestStep, status: GuestStatus) -> None:
    if status.lock:
        raise errors.Locked(f"{step.guest} is locked ({status.lock})")


class Start(GuestStep, frozen=True):
    """Turn a guest on."""

    certain = True

    async def perform(self, pve: PveWriter) -> Upid | None:
        status = await own_status(pve, self.guest)
        if status.running:
            return None
        _unlocked(self, status)
        return await pve.qemu.start(self.guest.host, self.guest.vmid)

    def expects(self) -> Expectation:
        return Expectation(self.guest.vmid, {"status": "running"})


class Shutdown(GuestStep, frozen=True, kw_only=True):
    """Ask a guest to turn itself off; ``force`` pulls the plug when it does not in time."""

    certain = True

    timeout_seconds: int = 60
    force: bool = False

    async def perform(self, pve: PveWriter) -> Upid | None:
        status = await own_status(pve, self.guest)
        if not status.running:
            return None
        _unlocked(self, status)
        return await pve.qemu.shutdown(
            self.guest.host,
            self.guest.vmid,
            timeout_seconds=self.timeout_seconds,
            force_stop=self.force or None,
        )

    def expects(self) -> Expectation:
        return Expectation(self.guest.vmid, {"status": "stopped"})


class Stop(GuestStep, frozen=True):
    """Turn a guest off at once, also while a shutdown is under way."""

    certain = True

    async def perform(self, pve: PveWriter) -> Upid | None:
        if not (await own_status(pve, self.guest)).running:
            return None
        return await pve.qemu.stop(self.guest.host, self.guest.vmid, overrule_shutdown=True)

    def expects(self) -> Expectation:
        return Expectation(self.guest.vmid, {"status": "stopped"})


class Reboot(GuestStep, frozen=True, kw_only=True):
    """Shut down and start again, so that pending changes come true.

    ``up_at_least_seconds`` makes it harmless twice: who is up for less long was rebooted since.
    """

    up_at_least_seconds: int
    timeout_seconds: int = 60

    async def perform(self, pve: PveWriter) -> Upid | None:
        status = await own_status(pve, self.guest)
        if not status.running or status.uptime < self.up_at_least_seconds:
            return None
        _unlocked(self, status)
        return await pve.qemu.reboot(
            self.guest.host, self.guest.vmid, timeout_seconds=self.timeout_seconds
        )
