"""
The regions in use: those of the configuration, and those that clusters bring by their credentials.

In: the configured regions, and for each cluster the regions of its Secrets. Out: one set of
regions, kept up to date. A cluster cannot replace a configured region: the name belongs to the
configuration, and a cluster that wants it with other credentials is told so.
"""

from collections.abc import Hashable, Iterable

from moxwell.errors import Invalid
from moxwell.pve.config import RegionConfig
from moxwell.pve.regions import Regions


class RegionTaken(Invalid):
    """The name of the region belongs to another one already."""

    reason = "RegionNameTaken"


class RegionBook:
    """Who brings which regions."""

    def __init__(self, regions: Regions, configured: Iterable[RegionConfig]) -> None:
        self._regions = regions
        self._configured = {c.region: c for c in configured}
        self._brought: dict[Hashable, tuple[RegionConfig, ...]] = {}

    @property
    def shared(self) -> frozenset[str]:
        """The regions of the configuration: everybody's."""
        return frozenset(self._configured)

    def may_use(self, owner: Hashable, region: str) -> bool:
        """A region that clusters brought is theirs alone."""
        brought = self._brought.get(owner, ())
        return region in self._configured or any(c.region == region for c in brought)

    def configure(self, configured: Iterable[RegionConfig]) -> None:
        """The configuration was read again."""
        self._configured = {c.region: c for c in configured}
        self._reload()

    def bring(self, owner: Hashable, configs: Iterable[RegionConfig]) -> None:
        """A cluster's own regions; replaces what it brought before."""
        wanted = tuple(configs)
        for config in wanted:
            if config.region in self._configured:
                raise RegionTaken(
                    f"region {config.region!r} is configured for everybody already; give the "
                    "cluster's own region another name in spec.region or spec.regions"
                )
        if self._brought.get(owner, ()) != wanted:
            self._brought[owner] = wanted
            self._reload()

    def drop(self, owner: Hashable) -> None:
        """A cluster is gone."""
        if self._brought.pop(owner, ()):
            self._reload()

    def _reload(self) -> None:
        every = dict(self._configured)
        for configs in self._brought.values():
            for config in configs:
                every.setdefault(config.region, config)
        self._regions.reload(every.values())
