"""Waits that several parts of the plan of ``infra.machine`` share. Pure."""

from moxwell.api.infra.machine_reasons import ProxmoxMachineReason
from moxwell.controllers.infra.machine.observed import MachineGuest, ObservedProxmoxMachine
from moxwell.runtime.move import Wait
from moxwell.scheduling import quota
from moxwell.scheduling.quota import Excess

QUOTA_SECONDS = 15.0  # until a full quota is read again


def quota_exceeded(excess: tuple[Excess, ...]) -> Wait:
    """Wait until the tenant deletes machines, or its quota is raised."""
    return Wait(ProxmoxMachineReason.QUOTA_EXCEEDED, quota.sentence(excess), QUOTA_SECONDS)


def region_problem(seen: ObservedProxmoxMachine) -> Wait | None:
    if not seen.region.known:
        return Wait(ProxmoxMachineReason.REGION_UNKNOWN, seen.region.error)
    if not seen.region.reachable:
        return Wait(ProxmoxMachineReason.REGION_UNREACHABLE, seen.region.error)
    return None


def backoff(seen: ObservedProxmoxMachine) -> Wait | None:
    """Wait after a failed task."""
    if not seen.backoff_seconds or seen.failure is None:
        return None
    error = seen.failure.error
    return Wait(error.reason, str(error), seen.backoff_seconds)


def host_down(guest: MachineGuest, consequence: str) -> Wait:
    return Wait(ProxmoxMachineReason.HOST_DOWN, f"host {guest.seen.host} is down; {consequence}")


def locked(guest: MachineGuest) -> Wait:
    return Wait(
        ProxmoxMachineReason.LOCKED, f"guest {guest.seen.vmid} is locked ({guest.seen.lock})"
    )
