"""
Observes clones that never complete because their host went down.

A host that loses power during a clone leaves a guest with ``lock: clone``, no name, no mark, no
hardware and an incomplete disk; Proxmox never resumes it. Only root@pam with a password may skip
the lock, an API token cannot. The machine then claims another VMID, the claim lists the old one,
and the old guest is removed once it is unlocked. A running clone of another user looks the same, so
nothing is stale while any clone task runs on the host. The time since when a clone is idle is kept
in memory; after a restart it starts again.
"""

from collections.abc import Iterable

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.clock import Clock
from moxwell.controllers.infra.guest_names import mark_of
from moxwell.controllers.infra.machine.observed import MachineGuest, StaleClone
from moxwell.pve import errors, ownership
from moxwell.pve.guests import CLONING
from moxwell.pve.model import ObservedGuest
from moxwell.pve.regions import Region, Regions


class StaleCloneObserver:
    """Measures how long clones are idle, and reads abandoned ones."""

    def __init__(self, regions: Regions, clock: Clock) -> None:
        self._regions, self._clock = regions, clock
        self._idle_since: dict[str, float] = {}  # by UID

    def idle_seconds(
        self, obj: ProxmoxMachine, found: MachineGuest | None, *, task_running: bool
    ) -> float | None:
        """How long the clone has been locked without a task of ours; None if it is not."""
        busy = bool(obj.spec.provider_id) or task_running
        if busy or found is None or not found.cloning or not _is_clone_locked(found):
            self._idle_since.pop(obj.uid, None)
            return None
        now = self._clock.monotonic()
        return now - self._idle_since.setdefault(obj.uid, now)

    async def read(
        self, obj: ProxmoxMachine, names: Iterable[str], scope: str = ""
    ) -> tuple[StaleClone, ...]:
        """The state of abandoned clones, given as region/VMID, in the regions of a cluster."""
        regions = self._regions.scope(scope)
        return tuple([await self._read_one(obj, name, regions) for name in names])

    async def _read_one(self, obj: ProxmoxMachine, name: str, regions: Regions) -> StaleClone:
        region_name, _, number = name.rpartition("/")
        if not number.isdecimal():
            return StaleClone(region_name, 0, "gone")  # not written by the controller
        vmid, region = int(number), regions.find(region_name)
        if region is None or not region.inventory.health.reachable:
            return StaleClone(region_name, vmid, "unknown")
        guest = region.inventory.find(vmid)
        if guest is None:
            gone = await region.inventory.is_gone(vmid)
            return StaleClone(region_name, vmid, "gone" if gone else "unknown")
        host = region.inventory.hosts.get(guest.host)
        if host is None or not host.online:
            return StaleClone(region_name, vmid, "unknown", guest.host)
        return await self._read_config(obj, region, guest)

    async def _read_config(
        self, obj: ProxmoxMachine, region: Region, guest: ObservedGuest
    ) -> StaleClone:
        name, vmid, host = region.name, guest.vmid, guest.host
        try:
            config = await region.reader.qemu.config(host, vmid)
        except errors.GuestMissing:
            region.inventory.poll_frequently()
            return StaleClone(name, vmid, "unknown", host)
        if not config.is_stale_clone and not ownership.is_ours(config, mark_of(obj)):
            return StaleClone(name, vmid, "gone", host)  # the VMID belongs to another guest now
        if not config.lock:
            return StaleClone(name, vmid, "removable", host)
        root = region.config.is_root
        if config.lock == CLONING and root and not await clone_tasks_run(region, host):
            return StaleClone(name, vmid, "removable", host, skip_lock=True)
        return StaleClone(name, vmid, "locked", host)

    def forget(self, uid: str) -> None:
        """Forget the idle time of a machine that has a new claim or is deleted."""
        self._idle_since.pop(uid, None)


async def clone_tasks_run(region: Region, host: str) -> bool:
    """Whether any clone task, of any user, runs on a host."""
    rows = await region.reader.tasks.list(host, source="active")
    return any(row.type == "qmclone" and row.running for row in rows)


def _is_clone_locked(found: MachineGuest) -> bool:
    lock = found.config.lock if found.config is not None else found.seen.lock
    return lock == CLONING
