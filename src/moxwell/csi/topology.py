"""
Chooses the storage and host for a new volume, and computes its accessible topology. Pure.

The zone of a topology requirement is ignored for shared storage, because every host of the region
reaches it; so an outdated zone label does not block provisioning. If several regions have the
storage and none is named, the request is rejected.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from moxwell.csi.errors import InsufficientCapacity
from moxwell.csi.parameters import VolumeParameters
from moxwell.errors import Invalid
from moxwell.pve.model import ObservedStorage
from moxwell.pve.regions import Region

REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
Segments = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StorageLocation:
    """A storage on one host."""

    region: Region
    host: str
    storage: ObservedStorage

    @property
    def volume_id_host(self) -> str:
        """The host part of a volume id; empty on shared storage."""
        return "" if self.storage.shared else self.host

    def segments(self) -> tuple[dict[str, str], ...]:
        """The accessible topology of a volume on this storage."""
        here = {REGION: self.region.name}
        if not self.storage.shared:
            return ({**here, ZONE: self.region.zone_of(self.host)},)
        seeing = {h for h, s in self.region.inventory.storages if s == self.storage.name}
        if seeing >= set(self.region.inventory.hosts):
            return (here,)
        zones = sorted({self.region.zone_of(h) for h in seeing})
        return tuple({**here, ZONE: zone} for zone in zones)


def locations_in(
    region: Region, storage: str, hosts: Iterable[str] | None = None
) -> list[StorageLocation]:
    """The locations in a region with this storage for images; most free space first."""
    found = [
        StorageLocation(region, host, seen)
        for (host, name), seen in region.inventory.storages.items()
        if name == storage
        and (hosts is None or host in set(hosts))
        and seen.available
        and "images" in seen.content
        and (up := region.inventory.hosts.get(host)) is not None
        and up.online
    ]
    return sorted(found, key=lambda p: (-p.storage.free_bytes, p.host))


def choose_locations(
    regions: Sequence[Region], params: VolumeParameters, wanted: Sequence[Segments], size: int
) -> list[StorageLocation]:
    """
    The locations that satisfy the topology and have room, best first; raises InsufficientCapacity.
    """
    storage = params.text("storage")
    found: list[StorageLocation] = []
    for segments in wanted or [_only_region(regions, params)]:
        region = next((r for r in regions if r.name == segments.get(REGION)), None)
        if region is None or params.text("region") not in ("", region.name):
            continue
        zone = segments.get(ZONE)
        candidates = locations_in(region, storage)
        if zone and not any(p.storage.shared for p in candidates):
            candidates = [p for p in candidates if p.host in region.config.hosts_of(zone)]
        found += [p for p in candidates if p not in found]
    if not found:
        raise InsufficientCapacity(
            f"no host that the topology allows has storage {storage!r} for images"
        )
    fitting = [p for p in found if p.storage.free_bytes >= size]
    if not fitting:
        largest = max(p.storage.free_bytes for p in found)
        raise InsufficientCapacity(
            f"storage {storage!r} has at most {largest >> 30} GiB free, not {size >> 30}"
        )
    return fitting


def _only_region(regions: Sequence[Region], params: VolumeParameters) -> Segments:
    named = params.text("region")
    if named:
        return {REGION: named}
    containing = [r.name for r in regions if locations_in(r, params.text("storage"))]
    if len(containing) > 1:
        raise Invalid(
            f"storage {params.text('storage')!r} is in regions {', '.join(containing)}: "
            "choose one with allowedTopologies or the parameter region"
        )
    return {REGION: containing[0] if containing else ""}
