"""The checks of regions, with facts that are cached for some time."""

from collections.abc import Mapping
from dataclasses import replace

from moxwell.clock import Clock
from moxwell.preflight.checks import check_region
from moxwell.preflight.facts import Answers, RegionFacts, read_facts
from moxwell.preflight.outcome import CheckLevel, RegionCheck, RegionNeeds, could_make_cluster
from moxwell.pve.regions import Region, Regions

FACTS_SECONDS = 120.0


class Preflight:
    """Checks regions; ``answers`` tries the further URLs of a region."""

    def __init__(self, regions: Regions, clock: Clock, answers: Answers | None = None) -> None:
        self._regions, self._clock, self._answers = regions, clock, answers
        self._known: dict[str, tuple[float, RegionFacts]] = {}

    def needs(self, region: str) -> RegionNeeds:
        """The needs of any cluster in a region."""
        return RegionNeeds(pool=self._regions[region].config.pool)

    async def facts(self, region: Region, *, fresh: bool = False) -> RegionFacts:
        """The facts of a region, read again after two minutes or if they must be fresh."""
        now = self._clock.monotonic()
        read, known = self._known.get(region.key, (0.0, None))
        if known is None or fresh or now - read > FACTS_SECONDS:
            known = await read_facts(region.reader, region.config, self._clock, self._answers)
            self._known[region.key] = (now, known)
        return known

    async def check(
        self, needs: Mapping[str, RegionNeeds], *, fresh: bool = False
    ) -> dict[str, tuple[RegionCheck, ...]]:
        """The checks by region."""
        return {
            name: check_region(await self.facts(self._regions[name], fresh=fresh), need)
            for name, need in sorted(needs.items())
        }


def of_cluster(found: Mapping[str, tuple[RegionCheck, ...]]) -> tuple[RegionCheck, ...]:
    """
    The checks of a cluster that may use all these regions, each with the name of its region.

    A region that fails is a warning if another one does not: machines are placed there.
    """
    usable = any(could_make_cluster(checks) for checks in found.values())
    rows = []
    for region, checks in sorted(found.items()):
        for check in checks:
            softer = usable and check.level is CheckLevel.FAIL
            level = CheckLevel.WARN if softer else check.level
            rows.append(replace(check, level=level, what=f"region {region}: {check.what}"))
    return tuple(rows)
