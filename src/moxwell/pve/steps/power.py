"""
Steps that start, shut down, stop and reboot a guest.

Proxmox accepts the start of a running guest and fails it later in the task, so the state is read
from the guest's own host first, in the request that also shows the mark.
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
    """Start a guest."""

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
    """
    Shut a guest down; ``force`` stops it after the timeout, and at once if it does not execute.
    """

    certain = True

    timeout_seconds: int = 60
    force: bool = False

    async def perform(self, pve: PveWriter) -> Upid | None:
        status = await own_status(pve, self.guest)
        if not status.running:
            return None
        _unlocked(self, status)
        if not status.executes and not self.force:
            raise errors.WrongState(f"{self.guest} is {status.qmpstatus} and cannot shut down")
        if not status.executes:
            return await pve.qemu.stop(self.guest.host, self.guest.vmid, overrule_shutdown=True)
        return await pve.qemu.shutdown(
            self.guest.host,
            self.guest.vmid,
            timeout_seconds=self.timeout_seconds,
            force_stop=self.force or None,
        )

    def expects(self) -> Expectation:
        return Expectation(self.guest.vmid, {"status": "stopped"})


class Stop(GuestStep, frozen=True):
    """Stop a guest at once, even while a shutdown is running."""

    certain = True

    async def perform(self, pve: PveWriter) -> Upid | None:
        if not (await own_status(pve, self.guest)).running:
            return None
        return await pve.qemu.stop(self.guest.host, self.guest.vmid, overrule_shutdown=True)

    def expects(self) -> Expectation:
        return Expectation(self.guest.vmid, {"status": "stopped"})
