"""
The regions in use: those of the configuration, and those that clusters add by credentials.

It connects and disconnects regions in ``pve.regions``. A cluster cannot replace a configured
region, and nobody else can use a region that a cluster added, also under the same name.
"""

from collections.abc import Hashable, Iterable

from moxwell.errors import Invalid
from moxwell.pve.config import RegionConfig
from moxwell.pve.regions import Regions


class RegionNameTaken(Invalid):
    """A cluster adds a region under the name of a configured one."""

    reason = "RegionNameTaken"


class RegionRegistry:
    """Which cluster added which regions."""

    def __init__(self, regions: Regions, configured: Iterable[RegionConfig]) -> None:
        self._regions = regions
        self._configured = {c.region: c for c in configured}
        self._added: dict[str, tuple[RegionConfig, ...]] = {}

    @property
    def shared(self) -> frozenset[str]:
        """The regions of the configuration, which every cluster may use."""
        return frozenset(self._configured)

    def scope(self, owner: Hashable) -> Regions:
        """The regions that a cluster may use: the configured ones and those that it added."""
        return self._regions.scope(str(owner))

    def added_by(self, owner: Hashable) -> tuple[RegionConfig, ...]:
        """The regions that a cluster has added."""
        return self._added.get(str(owner), ())

    def check(self, configs: Iterable[RegionConfig]) -> None:
        """Raise if one of the regions has the name of a configured one."""
        for config in configs:
            if config.region in self._configured:
                raise RegionNameTaken(
                    f"region {config.region!r} is configured for all clusters; give the "
                    "cluster's own region another name in spec.region or spec.regions"
                )

    def configure(self, configured: Iterable[RegionConfig]) -> None:
        """Use a new configuration."""
        self._configured = {c.region: c for c in configured}
        self._reload()

    def add(self, owner: Hashable, configs: Iterable[RegionConfig]) -> None:
        """Add the regions of a cluster; replaces those that it added before."""
        wanted = tuple(configs)
        self.check(wanted)
        if self.added_by(owner) != wanted:
            self._added[str(owner)] = wanted
            self._reload()

    def remove(self, owner: Hashable) -> None:
        """Remove the regions of a deleted cluster."""
        if self._added.pop(str(owner), ()):
            self._reload()

    def _reload(self) -> None:
        self._regions.reload(self._configured.values(), self._added)
