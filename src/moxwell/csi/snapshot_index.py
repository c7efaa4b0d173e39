"""
The index of native snapshots by their CreateSnapshot name; reads snapshots of helper VMs.

Only Proxmox stores the snapshots: name, source and size are in their descriptions. All helper VMs
are read when a name is first looked up; later the index follows the driver's own changes.
"""

from dataclasses import dataclass

import structlog

from moxwell.csi.helper_vms import SNAPSHOT_TAG, description_field
from moxwell.csi.ids import SnapshotId, find_volume, get_volume
from moxwell.errors import Missing, Unreachable
from moxwell.pve.endpoints.snapshots import SnapshotRow
from moxwell.pve.ownership import is_helper_vm
from moxwell.pve.regions import Region

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A native snapshot of a volume."""

    snapname: str
    name: str  # of the CreateSnapshot call
    source: str
    size: int
    created: int

    @property
    def id(self) -> SnapshotId:
        return SnapshotId(get_volume(self.source), self.snapname)


def _record(row: SnapshotRow) -> SnapshotRecord:
    text = row.description
    size = description_field(text, "size")
    return SnapshotRecord(
        row.name,
        description_field(text, "name"),
        description_field(text, "source"),
        int(size) if size.isdigit() else 0,
        row.snaptime,
    )


async def list_native_snapshots(region: Region, host: str, vmid: int) -> tuple[SnapshotRecord, ...]:
    """Read the snapshots of a helper VM that were made by CreateSnapshot."""
    rows = await region.reader.snapshots.list(host, vmid)
    return tuple(
        _record(row) for row in rows if find_volume(description_field(row.description, "source"))
    )


class SnapshotIndex:
    """Native snapshots by region and name."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, SnapshotRecord]] = {}

    async def find(self, region: Region, name: str) -> SnapshotRecord | None:
        """The snapshot with a name; reads all helper VMs on the first call."""
        if region.name not in self._known:
            await self.refresh(region)
        return self._known[region.name].get(name)

    async def refresh(self, region: Region) -> tuple[SnapshotRecord, ...]:
        """Read the snapshots of all helper VMs in a region."""
        found: list[SnapshotRecord] = []
        for guest in tuple(region.inventory.guests.values()):
            if is_helper_vm(guest.tags) and SNAPSHOT_TAG not in guest.tags:
                try:
                    found += await list_native_snapshots(region, guest.host, guest.vmid)
                except (Missing, Unreachable) as error:
                    log.info("helper VM skipped", guest=guest.vmid, error=str(error))
        self._known[region.name] = {record.name: record for record in found}
        return tuple(found)

    def add(self, region: str, record: SnapshotRecord) -> None:
        self._known.setdefault(region, {})[record.name] = record

    def remove(self, snapshot: SnapshotId) -> None:
        known = self._known.get(snapshot.volume.region, {})
        for name in [n for n, record in known.items() if record.id == snapshot]:
            del known[name]
