"""
What is known of the configured regions now, for validation: inventories, and the bridges of hosts.

Admission cannot wait for Proxmox, so bridges are read in a loop. A region that does not answer, and
bridges that were read too long ago or of which a host is missing, are not known.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate
from moxwell.clock import Clock
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.controllers.infra.templates import template_of
from moxwell.errors import Retryable, Terminal
from moxwell.pve.regions import Region, Regions
from moxwell.scheduling.inventory_model import Template
from moxwell.scheduling.known_infrastructure import KnownInfrastructure, KnownRegion

READ_SECONDS = 60.0  # between two reads of the bridges of a region
RETRY_SECONDS = 3.0  # until a region that was never read answers
KEEP_SECONDS = 180.0  # then they are not known any more


@dataclass(frozen=True, slots=True)
class _Bridges:
    at: float
    by_host: Mapping[str, frozenset[str]]


class KnownRegions:
    """The configured regions as values; ``run`` keeps the bridges current."""

    def __init__(
        self,
        regions: Regions,
        registry: RegionRegistry,
        clock: Clock,
        builds: Callable[[], Iterable[ProxmoxTemplate]] = tuple,
    ) -> None:
        """``builds`` are the templates that Moxwell builds."""
        self._regions, self._registry, self._clock = regions, registry, clock
        self._builds = builds
        self._bridges: dict[str, _Bridges] = {}

    def now(self) -> KnownInfrastructure:
        """Everything that is known; never awaits."""
        names = sorted(self._registry.shared)
        found = [region for name in names if (region := self._regions.find(name)) is not None]
        known = {region.name: self._known(region) for region in found}
        return KnownInfrastructure(known, complete=bool(names) and len(known) == len(names))

    def others_exist(self) -> bool:
        """Whether clusters have added regions of their own, which only they may use."""
        return len(self._regions.all()) > len(self._registry.shared)

    def _known(self, region: Region) -> KnownRegion:
        inventory, zones = region.inventory, frozenset(region.config.zones)
        if not (inventory.synced and inventory.health.reachable):
            return KnownRegion(name=region.name, zones=zones)
        rows = inventory.storages.values()
        return KnownRegion(
            name=region.name,
            zones=zones,
            hosts=frozenset(inventory.hosts),
            storages=frozenset(row.name for row in rows if "images" in row.content),
            bridges=self._known_bridges(region),
            pools=inventory.view.pools or None,  # none: Pool.Audit may be missing
            templates=None if self._is_building(region) else self._templates(region),
        )

    def _templates(self, region: Region) -> tuple[Template, ...]:
        found = region.inventory.view.templates
        return tuple(template_of(region.name, guest) for guest in found if guest.kind == "qemu")

    def _is_building(self, region: Region) -> bool:
        """Whether a template is being built in a region: its tags are not known yet."""
        return any(
            build.spec.region in (None, region.name)
            and not any(c.type == "Ready" and c.status == "True" for c in build.status.conditions)
            for build in self._builds()
        )

    def _known_bridges(self, region: Region) -> frozenset[str] | None:
        found, hosts = self._bridges.get(region.key), region.inventory.hosts
        if found is None or self._clock.monotonic() - found.at > KEEP_SECONDS:
            return None
        if any(host not in found.by_host for host in hosts):
            return None
        return frozenset(name for names in found.by_host.values() for name in names)

    async def run(self) -> None:
        """Read the bridges of all regions again and again."""
        while True:
            await self.refresh()
            waited = 0.0
            while waited < READ_SECONDS:
                await self._clock.sleep(RETRY_SECONDS)
                waited += RETRY_SECONDS
                await self.refresh(again=False)

    async def refresh(self, *, again: bool = True) -> None:
        """Read the bridges of hosts that are online; without ``again`` of new regions only."""
        regions = [r for r in self._regions.values() if r.inventory.health.reachable]
        due = [r for r in regions if again or r.key not in self._bridges]
        await asyncio.gather(*(self._read(region) for region in due))

    async def _read(self, region: Region) -> None:
        hosts = [host.name for host in region.inventory.hosts.values() if host.online]
        found: dict[str, frozenset[str]] = {}
        for host in hosts:
            try:
                rows = await region.reader.nodes.network(host, type="any_bridge")
            except (Retryable, Terminal):  # not known: nothing is refused
                continue
            found[host] = frozenset(row.iface for row in rows)
        self._bridges[region.key] = _Bridges(self._clock.monotonic(), found)
