"""
``infra.collect``: reports orphaned guests and deletes orphaned bootstrap ISOs.

It has the parts of a controller (see, plan, act) but reconciles no object: a timer runs it.
"""

from collections.abc import Callable

import structlog

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.clock import Clock
from moxwell.controllers.infra.collect.plan import CollectOrphans, ObservedOrphans, Orphan, plan
from moxwell.controllers.infra.collect.see import OrphanObserver
from moxwell.controllers.infra.iso_cache import IsoCache
from moxwell.errors import MoxwellError
from moxwell.pve.regions import Regions
from moxwell.pve.steps import DeleteVolume
from moxwell.runtime.cache import Cache

NAME = "infra.collect"
INTERVAL_SECONDS = 300.0

log = structlog.get_logger(__name__)


class OrphanCollector:
    """Collects orphans every five minutes; ``guests`` are those that it reported last."""

    def __init__(
        self,
        regions: Regions,
        clock: Clock,
        machines: Cache[ProxmoxMachine],
        isos: IsoCache,
        *,
        report: Callable[[str, int], None] = lambda region, count: None,
    ) -> None:
        """``report`` receives the number of orphaned guests of each region."""
        self._regions, self._clock, self._report = regions, clock, report
        self._observer = OrphanObserver(regions, clock, machines, isos)
        self.guests: tuple[Orphan, ...] = ()

    async def run(self) -> None:
        """Run every five minutes until cancelled."""
        while True:
            await self._clock.sleep(INTERVAL_SECONDS)
            await self.round()

    async def round(self) -> None:
        """See, plan and act once."""
        await self.act(self.plan(await self.see()))

    async def see(self) -> ObservedOrphans:
        """Observe the orphans; see :mod:`.see`."""
        return await self._observer.see()

    def plan(self, seen: ObservedOrphans) -> CollectOrphans:
        """Decide what to report and delete; see :mod:`.plan`."""
        return plan(seen)

    async def act(self, move: CollectOrphans) -> None:
        """Report guests and delete ISOs; a failure is logged and retried in the next round."""
        self.guests = move.guests
        for name in move.regions:
            self._report(name, sum(o.region == name for o in move.guests))
        for orphan in move.guests:
            log.warning("orphan found", region=orphan.region, guest=orphan.name, mark=orphan.key)
        for scope, step in move.deletions:
            await self._delete(scope, step)

    async def _delete(self, scope: str, step: DeleteVolume) -> None:
        try:
            await self._regions.scope(scope)[step.region].perform(step, f"{NAME} {step.volid}")
            log.info("orphan deleted", region=step.region, volume=step.volid)
        except MoxwellError as error:
            log.warning("orphan not deleted", volume=step.volid, error=str(error))
