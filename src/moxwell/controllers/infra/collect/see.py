"""Observes orphaned guests and bootstrap ISOs in all reachable regions."""

from dataclasses import replace

import structlog

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.clock import Clock
from moxwell.controllers.infra.collect.plan import (
    ObservedOrphans,
    Orphan,
    key_of,
    orphaned_guests,
    orphaned_isos,
)
from moxwell.controllers.infra.guest_names import BOOTING, mark_of
from moxwell.controllers.infra.iso_cache import IsoCache
from moxwell.errors import MoxwellError
from moxwell.pve.regions import Region, Regions
from moxwell.pve.steps import StorageOnHost
from moxwell.runtime.cache import Cache

log = structlog.get_logger(__name__)


class OrphanObserver:
    """Lists both sides; remembers in memory since when each orphan is known."""

    def __init__(
        self, regions: Regions, clock: Clock, machines: Cache[ProxmoxMachine], isos: IsoCache
    ) -> None:
        self._regions, self._clock, self._machines, self._isos = regions, clock, machines, isos
        self._since: dict[Orphan, float] = {}

    async def see(self) -> ObservedOrphans:
        """All orphans of the regions that answer."""
        regions = [r for r in self._regions.all() if r.inventory.health.reachable]
        found: list[Orphan] = []
        for region in regions:
            found += await self._see_region(region)
        now = self._clock.monotonic()
        self._since = {orphan: self._since.get(orphan, now) for orphan in found}
        return ObservedOrphans(
            tuple(r.name for r in regions),
            dict(self._since),
            now,
            owners_unreadable=bool(self._machines.unreadable),
        )

    async def _see_region(self, region: Region) -> list[Orphan]:
        owners = self._owners()
        guests = region.inventory.guests.values()
        booted = {g.vmid for g in guests if g.running and BOOTING not in g.tags}
        found = list(orphaned_guests(region.name, region.inventory.guests.values(), owners))
        for storage in _iso_storages(region):
            try:
                volids = await self._isos.list(region, storage)
            except MoxwellError as error:
                where = {"region": region.name, "storage": storage.storage}
                log.info("storage not listed", **where, error=str(error))
                continue
            found += orphaned_isos(region.name, storage.host, volids, owners, booted)
        return [replace(orphan, scope=region.owner) for orphan in found]

    def _owners(self) -> dict[str, int]:
        """The VMID of every machine by owner key: that of its claim, and that of its UID."""
        owners: dict[str, int] = {}
        for machine in self._machines.list():
            vmid = machine.spec.virtual_machine_id or 0
            owners[key_of(machine.uid)] = vmid
            if machine.spec.claim:
                mark = mark_of(machine)
                owners[mark.key] = owners[f"{mark.key}-{mark.cluster_key}"] = vmid
        return owners


def _iso_storages(region: Region) -> list[StorageOnHost]:
    """Every available storage for ISO images; a shared one once."""
    found: dict[tuple[str, str], StorageOnHost] = {}
    hosts = region.inventory.hosts
    for (host, name), storage in sorted(region.inventory.storages.items()):
        online = host in hosts and hosts[host].online
        if "iso" in storage.content and storage.available and online:
            key = ("", name) if storage.shared else (host, name)
            found.setdefault(key, StorageOnHost(region.name, host, name))
    return list(found.values())
