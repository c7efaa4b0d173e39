"""
New disks from volumes and snapshots, by Proxmox's own clone of their carriers; no root needed.

In: a source, a name, how it may be made. Out: a carrier that owns the new disk. Where the storage
has snapshots, a clone of a volume is a clone of a snapshot that lives as long as the cloning; else
it is a full copy of a disk that no running guest may have. The surprise: cloning can take hours, so
it goes on when its caller gives up, and the next call finds it, or what became of it.
"""

from dataclasses import dataclass

import structlog

from moxwell.csi import native_snapshots
from moxwell.csi.driver import Driver
from moxwell.csi.errors import UnderWay
from moxwell.csi.helper_vms import COPY_TAG, Birth, Carrier, guest_name
from moxwell.csi.ids import VolumeId
from moxwell.csi.storage_features import Means
from moxwell.errors import Busy, MoxwellError, Unreachable
from moxwell.pve.ownership import Mark
from moxwell.pve.regions import Region
from moxwell.pve.values import Upid

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Cloning:
    """A disk that is to be made from another."""

    name: str  # of the volume or snapshot that it becomes
    mark: Mark
    source: VolumeId
    means: Means
    snapshot: str = ""  # of the source; empty: as it is now
    linked: bool = False
    storage: str = ""  # empty: the source's
    format: str = ""
    kind: str = COPY_TAG
    told: str = ""  # the source as the caller named it
    size: int = 0  # of the source
    made: int = 0  # when, in seconds since 1970
    host: str = ""  # where a local disk shall be; empty: where its source is

    @property
    def passing(self) -> str:
        """The name of a snapshot that lives only as long as the cloning."""
        return "" if self.snapshot or not self.means.own else f"clone-{self.mark.key[:16]}"

    @property
    def links(self) -> bool:
        """A clone may not hang on a snapshot that passes, unless it does not depend on it."""
        return self.linked and (self.means.free or not self.passing)

    @property
    def by(self) -> str:
        return "linked clone" if self.links else "full copy by Proxmox"

    @property
    def described(self) -> str:
        what = "snapshot" if self.kind != COPY_TAG else "volume"
        return self.mark.describe(
            f"Owns the disk of a Kubernetes {what}; never started, not to be removed by hand.\n"
            f"csi-name={self.name}\ncsi-source={self.told}\ncsi-size={self.size}\n"
            f"csi-made={self.made}\ncsi-by={self.by}"
        )


async def make(driver: Driver, region: Region, cloning: Cloning) -> Carrier:
    """Clone, or wait for the clone that is being made; a caller may go away meanwhile."""
    return await driver.clones.join(cloning.mark.key, lambda: _make(driver, region, cloning))


async def find(driver: Driver, region: Region, mark: Mark) -> Carrier | None:
    """What was cloned and finished under a mark; None if it was not, or not to the end."""
    if await driver.carriers.is_pending(mark):
        return None
    return await driver.carriers.find(region, mark)


async def _make(driver: Driver, region: Region, cloning: Cloning) -> Carrier:
    try:
        with driver.carriers.using(cloning.source):
            made = await _bear(driver, region, cloning)
        made = await bring(region, made, cloning.host)
    except (Unreachable, Busy):
        raise  # it may yet come true: leave all as it is for the next try
    except MoxwellError:
        await _clear(driver, region, cloning)
        raise
    await _clear(driver, region, cloning)
    await driver.carriers.born(cloning.mark)
    return made


async def _bear(driver: Driver, region: Region, cloning: Cloning) -> Carrier:
    found = await driver.carriers.find(region, cloning.mark)
    if found is not None:
        return found
    async with driver.carriers.lock(cloning.source):
        parent = await driver.carriers.need(region, cloning.source, cloning.host)
        if cloning.passing:
            await native_snapshots.take(
                region, parent, cloning.passing, "Lives as long as a cloning."
            )
    log.info(
        "cloning",
        source=str(cloning.source),
        name=cloning.name,
        by=cloning.by,
        snapshot=cloning.snapshot or cloning.passing,
    )

    async def start(vmid: int) -> Upid:
        return await region.pve.qemu.clone(
            parent.host,
            parent.vmid,
            vmid,
            name=guest_name(f"csi-{cloning.name}"),
            description=cloning.described,
            full=not cloning.links,
            storage=(cloning.storage or None) if not cloning.links else None,
            format=(cloning.format or None) if not cloning.links else None,
            snapname=cloning.snapshot or cloning.passing or None,
        )

    birth = Birth(cloning.mark, parent.host, cloning.kind, parent.vmid, start)
    return await driver.carriers.bear(region, birth)


async def bring(region: Region, carrier: Carrier, host: str) -> Carrier:
    """Move a carrier with its own local disk to a host; Proxmox copies the disk."""
    if not host or carrier.host == host or not carrier.disk_id(region).host:
        return carrier
    if carrier.config.lock:
        raise UnderWay(f"guest {carrier.vmid} is locked ({carrier.config.lock})")
    log.info("moving", guest=carrier.vmid, disk=carrier.drive, to=host)
    upid = await region.pve.qemu.migrate(carrier.host, carrier.vmid, host)
    ended = await region.tasks.wait_ended(upid)
    if ended.error is not None:
        raise ended.error
    region.inventory.learn(carrier.vmid, host=host)
    return Carrier(carrier.vmid, host, await region.pve.qemu.config(host, carrier.vmid))


async def _clear(driver: Driver, region: Region, cloning: Cloning) -> None:
    """The passing snapshot goes, and the carrier if it has no other."""
    async with driver.carriers.lock(cloning.source):
        parent = await driver.carriers.of(region, cloning.source)
        if parent is None:
            return
        if cloning.passing:
            await native_snapshots.drop(region, parent, cloning.passing)
        await native_snapshots.tidy(driver, region, cloning.source, parent)
