"""
Asks the QEMU guest agent whether the bootstrap has finished and which addresses the guest has.

While a guest boots, the interval between two requests grows with the time it has taken so far.
"""

from dataclasses import dataclass

from moxwell.api.capi.core import Machine
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.clock import Clock
from moxwell.errors import Missing, MoxwellError
from moxwell.pve import errors
from moxwell.pve.model import ObservedGuest
from moxwell.pve.regions import Region

SENTINEL = "/run/cluster-api/bootstrap-success.complete"
BOOT_SECONDS = 3.0  # no bootstrap finishes earlier
MIN_SECONDS, MAX_SECONDS, INTERVAL_RATIO = 2.0, 30.0, 0.1  # of the time it has taken so far


@dataclass(frozen=True, slots=True)
class BootstrapProgress:
    """Whether the bootstrap has finished, what the agent answered, seconds until the next try."""

    done: bool
    message: str = ""
    poll_seconds: float = 0.0


@dataclass(slots=True)
class _Poll:
    since: float
    due: float
    done: bool = False
    message: str = "the guest is booting"


class GuestAgentProbe:
    """Asks guest agents, at most as often as the interval allows."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._polls: dict[str, _Poll] = {}  # by UID

    async def bootstrap_progress(
        self, obj: ProxmoxMachine, region: Region, guest: ObservedGuest, machine: Machine
    ) -> BootstrapProgress:
        """How far the bootstrap is; asks the agent only when the next request is due."""
        if _needs_no_sentinel(obj, machine):
            return BootstrapProgress(True)
        now = self._clock.monotonic()
        poll = self._polls.setdefault(obj.uid, _Poll(now, now + BOOT_SECONDS))
        left = poll.due - now
        if not poll.done and left <= 0:
            poll.done, poll.message = await _read_sentinel(region, guest)
            now = self._clock.monotonic()
            left = min(max(MIN_SECONDS, INTERVAL_RATIO * (now - poll.since)), MAX_SECONDS)
            poll.due = now + left
        return BootstrapProgress(poll.done, poll.message, max(left, 0.5))

    async def addresses(
        self, obj: ProxmoxMachine, region: Region, guest: ObservedGuest
    ) -> dict[str, tuple[str, ...]]:
        """The addresses by interface; empty if the agent does not answer or is not used."""
        if obj.spec.checks and obj.spec.checks.skip_qemu_guest_agent:
            return {}
        try:
            found = await region.reader.agent.interfaces(guest.host, guest.vmid)
        except MoxwellError:
            return {}
        return {
            interface.name: tuple(a.ip for a in interface.addresses if not _is_link_local(a.ip))
            for interface in found
            if interface.name != "lo"
        }

    def forget(self, uid: str) -> None:
        """Forget a deleted machine."""
        self._polls.pop(uid, None)


async def _read_sentinel(region: Region, guest: ObservedGuest) -> tuple[bool, str]:
    try:
        await region.reader.agent.read_file(guest.host, guest.vmid, SENTINEL)
    except errors.AgentNotRunning:
        return False, "the guest agent does not answer yet"
    except errors.NotSupported:
        return True, "the guest has no agent; nothing to wait for"
    except (errors.InvalidParameter, errors.UnknownPveError):
        return False, "the bootstrap has not finished yet"
    except Missing:
        return False, "the guest is no longer on that host"
    return True, ""


def _needs_no_sentinel(obj: ProxmoxMachine, machine: Machine) -> bool:
    checks = obj.spec.checks
    skipped = checks and (checks.skip_qemu_guest_agent or checks.skip_cloud_init_status)
    ref = machine.spec.bootstrap.config_ref
    no_data = machine.spec.bootstrap.data_secret_name is None
    return bool(skipped) or no_data or bool(ref and ref.kind.startswith("Talos"))


def _is_link_local(address: str) -> bool:
    return address.lower().startswith(("fe80:", "127.", "::1"))
