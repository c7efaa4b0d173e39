"""
Which snapshots the storages hold for us, and under what names Kubernetes asked for them.

In: the snapshot lists of carriers, whose descriptions tell name, source and size. Out: a snapshot
by its name, at once. Every carrier is read when a name is first looked for; later the driver knows
what it did itself. The surprise: nothing but Proxmox keeps this; a lost cluster loses no snapshot.
"""

from dataclasses import dataclass

import structlog

from moxwell.csi.helper_vms import SNAPSHOT_TAG, note_in
from moxwell.csi.ids import TakenId, find_volume, get_volume
from moxwell.errors import Missing, Unreachable
from moxwell.pve.endpoints.snapshots import SnapshotRow
from moxwell.pve.ownership import SHELL_TAG
from moxwell.pve.regions import Region

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Taken:
    """A snapshot that a storage took for us."""

    snapname: str
    name: str  # as Kubernetes called it
    source: str
    size: int
    made: int

    @property
    def id(self) -> TakenId:
        return TakenId(get_volume(self.source), self.snapname)


def _taken(row: SnapshotRow) -> Taken:
    text = row.description
    size = note_in(text, "size")
    return Taken(
        row.name,
        note_in(text, "name"),
        note_in(text, "source"),
        int(size) if size.isdigit() else 0,
        row.snaptime,
    )


async def list_taken(region: Region, host: str, vmid: int) -> tuple[Taken, ...]:
    """The snapshots of a carrier that belong to Kubernetes; asked freshly."""
    rows = await region.pve.snapshots.list(host, vmid)
    return tuple(_taken(r) for r in rows if find_volume(note_in(r.description, "source")))


class TakenIndex:
    """Snapshots by region and name."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Taken]] = {}

    async def find(self, region: Region, name: str) -> Taken | None:
        """The snapshot of a name, asked of its carrier again."""
        if region.name not in self._known:
            await self.refresh(region)
        return self._known[region.name].get(name)

    async def refresh(self, region: Region) -> tuple[Taken, ...]:
        """Read every carrier."""
        found: list[Taken] = []
        for guest in tuple(region.inventory.guests.values()):
            if SHELL_TAG in guest.tags and SNAPSHOT_TAG not in guest.tags:
                try:
                    found += await list_taken(region, guest.host, guest.vmid)
                except (Missing, Unreachable) as error:
                    log.info("carrier left out", guest=guest.vmid, error=str(error))
        self._known[region.name] = {taken.name: taken for taken in found}
        return tuple(found)

    def learn(self, region: str, taken: Taken) -> None:
        self._known.setdefault(region, {})[taken.name] = taken

    def unlearn(self, taken: TakenId) -> None:
        known = self._known.get(taken.volume.region, {})
        for name in [n for n, t in known.items() if t.id == taken]:
            del known[name]
