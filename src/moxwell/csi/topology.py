"""
Where a volume may be made, and from where it can be reached.

In: the topology that Kubernetes asks for, the parameters, and what the inventory knows. Out: places
in order of preference, and the segments of a volume. Pure. The surprise: for a shared storage a
zone in the request means nothing (any host of the region can make the disk), so a node whose zone
is out of date does not stand in the way; and no region is ever guessed among several.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from moxwell.csi.errors import NoRoom
from moxwell.csi.parameters import Params
from moxwell.errors import Invalid
from moxwell.pve.model import StorageSeen
from moxwell.pve.regions import Region

REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
Segments = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Place:
    """A storage as seen from a host."""

    region: Region
    host: str
    storage: StorageSeen

    @property
    def id_host(self) -> str:
        """The host as ids carry it: none for what every host sees."""
        return "" if self.storage.shared else self.host

    def segments(self) -> tuple[dict[str, str], ...]:
        """From where a volume made here can be reached."""
        here = {REGION: self.region.name}
        if not self.storage.shared:
            return ({**here, ZONE: self.region.zone_of(self.host)},)
        seeing = {h for h, s in self.region.inventory.storages if s == self.storage.name}
        if seeing >= set(self.region.inventory.hosts):
            return (here,)
        zones = sorted({self.region.zone_of(h) for h in seeing})
        return tuple({**here, ZONE: zone} for zone in zones)


def places_in(region: Region, storage: str, hosts: Iterable[str] | None = None) -> list[Place]:
    """Where a region has a storage for images; the roomiest first."""
    found = [
        Place(region, host, seen)
        for (host, name), seen in region.inventory.storages.items()
        if name == storage
        and (hosts is None or host in set(hosts))
        and seen.available
        and "images" in seen.content
        and (up := region.inventory.hosts.get(host)) is not None
        and up.online
    ]
    return sorted(found, key=lambda p: (-p.storage.free_bytes, p.host))


def choose_places(
    regions: Sequence[Region], params: Params, wanted: Sequence[Segments], size: int
) -> list[Place]:
    """The places that fit, best first; raises NoRoom that says why there is none."""
    storage = params.text("storage")
    found: list[Place] = []
    for segments in wanted or [_only_region(regions, params)]:
        region = next((r for r in regions if r.name == segments.get(REGION)), None)
        if region is None or params.text("region") not in ("", region.name):
            continue
        zone = segments.get(ZONE)
        all_ = places_in(region, storage)
        if zone and not any(p.storage.shared for p in all_):
            all_ = [p for p in all_ if p.host in region.config.hosts_of(zone)]
        found += [p for p in all_ if p not in found]
    if not found:
        raise NoRoom(f"no host that the topology allows has storage {storage!r} for images")
    roomy = [p for p in found if p.storage.free_bytes >= size]
    if not roomy:
        most = max(p.storage.free_bytes for p in found)
        raise NoRoom(f"storage {storage!r} has at most {most >> 30} GiB free, not {size >> 30}")
    return roomy


def _only_region(regions: Sequence[Region], params: Params) -> Segments:
    named = params.text("region")
    if named:
        return {REGION: named}
    having = [r.name for r in regions if places_in(r, params.text("storage"))]
    if len(having) > 1:
        raise Invalid(
            f"storage {params.text('storage')!r} is in regions {', '.join(having)}: "
            "say which by topology or by the parameter region"
        )
    return {REGION: having[0] if having else ""}
