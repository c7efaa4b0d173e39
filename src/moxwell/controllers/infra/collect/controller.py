"""
The loop that looks for leftovers, in both directions, and removes what is certainly rubbish.

Guests that bear a mark without an owner are counted, told and never removed: whoever runs two
management clusters on one Proxmox has marks of the other, and a guest is not removed for want of an
object. Seed disks are rubbish by nature and go, where their machine is gone.
"""

from collections.abc import Callable

import structlog

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.clock import Clock
from moxwell.controllers.infra.collect.plan import (
    Orphan,
    key_of,
    orphaned_guests,
    orphaned_isos,
    ripe,
)
from moxwell.controllers.infra.iso_cache import Shelves
from moxwell.errors import MoxwellError
from moxwell.kube.client import Kube
from moxwell.pve.ownership import Mark
from moxwell.pve.regions import Region, Regions
from moxwell.pve.steps import DeleteVolume, Shelf, Step
from moxwell.runtime.cache import Cache

EVERY_SECONDS = 300.0

log = structlog.get_logger(__name__)


class Collector:
    """Looks for leftovers every few minutes."""

    def __init__(
        self,
        kube: Kube,
        regions: Regions,
        clock: Clock,
        machines: Cache[ProxmoxMachine],
        shelves: Shelves,
        *,
        count: Callable[[str, int], None] = lambda region, guests: None,
    ) -> None:
        """``count`` is told how many guests of a region have no owner."""
        self._kube, self._regions, self._clock = kube, regions, clock
        self._machines, self._shelves = machines, shelves
        self._count = count
        self._first_seen: dict[Orphan, float] = {}
        self.orphans: tuple[Orphan, ...] = ()

    async def run(self) -> None:
        """Look every few minutes for as long as it runs."""
        while True:
            await self._clock.sleep(EVERY_SECONDS)
            await self.round()

    async def round(self) -> None:
        """One look at every region that answers."""
        found: list[Orphan] = []
        seen = [r for r in self._regions.values() if r.inventory.health.reachable]
        for region in seen:
            found += await self._look(region)
        self.orphans = tuple(ripe(self._first_seen, found, self._clock.monotonic()))
        for region in seen:
            self._count(region.name, sum(o.region == region.name for o in self.guests))
        for orphan in self.orphans:
            await self._remove(orphan)

    @property
    def guests(self) -> tuple[Orphan, ...]:
        """Guests that bear our mark and have had no owner for a while."""
        return tuple(o for o in self.orphans if o.is_guest)

    async def _look(self, region: Region) -> list[Orphan]:
        owners = self._owners()
        found = list(orphaned_guests(region.name, region.inventory.guests.values(), owners))
        seen: set[str] = set()
        for (host, name), storage in sorted(region.inventory.storages.items()):
            online = (
                region.inventory.hosts[host].online if host in region.inventory.hosts else False
            )
            if "iso" not in storage.content or not storage.available or not online:
                continue
            if storage.shared and name in seen:
                continue
            seen.add(name)
            try:
                volids = await self._shelves.names(Shelf(region.name, host, name))
            except MoxwellError as error:
                log.info("storage not listed", region=region.name, storage=name, error=str(error))
                continue
            found += orphaned_isos(region.name, host, volids, owners)
        return found

    def _owners(self) -> dict[str, int]:
        """The ids by mark of every machine there is; also by UID, for claims not yet seen."""
        owners: dict[str, int] = {}
        for machine in self._machines.list():
            vmid = machine.spec.virtual_machine_id or 0
            owners[key_of(machine.uid)] = vmid
            if machine.spec.claim:
                owners[key_of(machine.spec.claim.uuid)] = vmid
        return owners

    async def _remove(self, orphan: Orphan) -> None:
        if self._machines.unreadable:
            return  # what cannot be read may own it
        step = self._step(orphan)
        if step is None:
            log.warning("orphan found", region=orphan.region, guest=orphan.name, mark=orphan.key)
            return
        try:
            await self._regions[orphan.region].take(step, f"infra.collect {orphan.name}")
            log.info("orphan removed", region=orphan.region, name=orphan.name, mark=orphan.key)
        except MoxwellError as error:
            log.warning("orphan not removed", name=orphan.name, error=str(error))

    def _step(self, orphan: Orphan) -> Step | None:
        if orphan.is_guest:
            return None
        shelf = Shelf(orphan.region, orphan.host, orphan.name.partition(":")[0])
        return DeleteVolume(shelf=shelf, mark=Mark(orphan.key), volid=orphan.name)
