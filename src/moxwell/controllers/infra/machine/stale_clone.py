"""
Clones that died with their host: telling that one is dead, and what may be done with what is left.

A host that loses power in the middle of a clone leaves a configuration with ``lock: clone``, no
name, no mark and no hardware, and half a disk; Proxmox never takes it up again. Nobody but root@pam
with a password may skip a lock, no token can. So the id is given up, another one is claimed, the
old one is kept in the claim, and what lies there is removed when somebody has unlocked it. A
stranger's clone looks the same while it runs: as long as any clone runs on the host, nothing is
dead. Since when a clone stands still is only remembered; after a restart the time begins anew.
"""

from collections.abc import Iterable

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.clock import Clock
from moxwell.controllers.infra.machine.guest_agent import mark_of
from moxwell.controllers.infra.machine.observed import Carcass, GuestFound
from moxwell.pve import errors, ownership
from moxwell.pve.config import PasswordAuth
from moxwell.pve.guests import CLONING
from moxwell.pve.model import GuestSeen
from moxwell.pve.regions import Region, Regions

STILL_SECONDS = 60.0  # a lock without a task, on a host that is up
DOWN_SECONDS = 300.0  # a clone whose host is down
ROOT = "root@pam"


class Carcasses:
    """Looks at clones that do not come to an end."""

    def __init__(self, regions: Regions, clock: Clock) -> None:
        self._regions, self._clock = regions, clock
        self._still_since: dict[str, float] = {}

    async def is_dead(
        self, obj: ProxmoxMachine, region: Region, found: GuestFound | None, *, busy: bool
    ) -> bool:
        """Has the clone at the claimed id died? ``busy``: a task of ours still runs."""
        if obj.spec.provider_id or busy or found is None or found.ours:
            self._still_since.pop(obj.uid, None)
            return False
        if found.config is not None and found.config.is_carcass and not found.config.lock:
            return True  # somebody has unlocked it already
        if not found.arriving or not _is_locked(found):
            self._still_since.pop(obj.uid, None)
            return False
        now = self._clock.monotonic()
        still = now - self._still_since.setdefault(obj.uid, now)
        if not found.host_online:
            return still >= DOWN_SECONDS
        return still >= STILL_SECONDS and not await _clones_run(region, found.seen.host)

    async def look(self, obj: ProxmoxMachine, places: Iterable[str]) -> tuple[Carcass, ...]:
        """What became of ids that were given up."""
        return tuple([await self._one(obj, place) for place in places])

    async def _one(self, obj: ProxmoxMachine, place: str) -> Carcass:
        name, _, number = place.rpartition("/")
        vmid, region = int(number), self._regions.find(name)
        if region is None or not region.inventory.health.reachable:
            return Carcass(name, vmid, "unknown")
        guest = region.inventory.find(vmid)
        if guest is None:
            gone = await region.inventory.is_gone(vmid)
            return Carcass(name, vmid, "gone" if gone else "unknown")
        host = region.inventory.hosts.get(guest.host)
        if host is None or not host.online:
            return Carcass(name, vmid, "unknown", guest.host)
        return await self._at_host(obj, region, guest)

    async def _at_host(self, obj: ProxmoxMachine, region: Region, guest: GuestSeen) -> Carcass:
        name, vmid, host = region.name, guest.vmid, guest.host
        try:
            config = await region.pve.qemu.config(host, vmid)
        except errors.GuestMissing:
            region.inventory.work_is_under_way()
            return Carcass(name, vmid, "unknown", host)
        if not config.is_carcass and not ownership.is_ours(config, mark_of(obj)):
            return Carcass(name, vmid, "gone", host)  # the id is somebody else's by now
        if not config.lock:
            return Carcass(name, vmid, "removable", host)
        if config.lock == CLONING and is_root(region) and not await _clones_run(region, host):
            return Carcass(name, vmid, "removable", host, skip_lock=True)
        return Carcass(name, vmid, "locked", host)

    def forget(self, obj: ProxmoxMachine) -> None:
        """The machine has another claim, or is gone."""
        self._still_since.pop(obj.uid, None)


def is_root(region: Region) -> bool:
    """May we skip locks there?"""
    auth = region.config.auth
    return isinstance(auth, PasswordAuth) and auth.username == ROOT


def _is_locked(found: GuestFound) -> bool:
    lock = found.config.lock if found.config is not None else found.seen.lock
    return lock == CLONING


async def _clones_run(region: Region, host: str) -> bool:
    rows = await region.pve.tasks.list(host, source="active")
    return any(row.type == "qmclone" and row.running for row in rows)
