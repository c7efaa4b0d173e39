"""
What every call of the controller works with: the regions, the index, the book, the settings.

In: the parts, made by whoever runs the driver. Out: one frozen value that is passed to each
operation. The surprise: the driver's name is a setting, as volumes made by proxmox-csi-plugin name
that driver for good; a controller under its name serves them.
"""

from dataclasses import dataclass, field

import structlog

from moxwell.clock import Clock
from moxwell.csi.attach_queue import GuestQueues
from moxwell.csi.attachments import Holders
from moxwell.csi.disks import Disk, Stock
from moxwell.csi.full_copies import Copies
from moxwell.csi.helper_vms import Carrier, Carriers
from moxwell.csi.ids import VolumeId
from moxwell.csi.journal import Book, MemoryBook
from moxwell.csi.nodes import Nodes
from moxwell.csi.pvc import Claims
from moxwell.csi.singleflight import Ongoing
from moxwell.csi.snapshot_index import TakenIndex
from moxwell.errors import Invalid, Missing, Unreachable
from moxwell.kube.client import Kube
from moxwell.pve.regions import Region, Regions

NAME = "csi.moxwell.dev"
GO_NAME = "csi.proxmox.sinextra.dev"
OWNER = 9999
log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Settings:
    """What can be chosen."""

    name: str = NAME
    owner: int = OWNER  # the guest id in disk names; no such guest exists
    shells: tuple[int, int] = (10_000, 99_999)  # ids of guests that carry volumes

    def __post_init__(self) -> None:
        if not 100 < self.owner <= 999_999_999:
            raise Invalid(f"controllerVMID must lie above 100, not be {self.owner}")


@dataclass(frozen=True)
class Driver:
    """The parts of a controller."""

    regions: Regions
    clock: Clock
    settings: Settings
    book: Book
    claims: Claims
    nodes: Nodes
    stock: Stock
    copies: Copies
    carriers: Carriers
    clones: Ongoing[Carrier] = field(default_factory=Ongoing)
    taken: TakenIndex = field(default_factory=TakenIndex)
    holders: Holders = field(default_factory=Holders)
    queues: GuestQueues = field(kw_only=True)

    async def region(self, name: str) -> Region:
        """A region that was looked at; raises while it was never reached."""
        region = self.regions[name]
        if not region.inventory.synced:
            await region.inventory.refresh()
        if not region.inventory.synced:
            raise Unreachable(f"region {name} does not answer: {region.inventory.health.error}")
        return region

    async def all_regions(self) -> list[Region]:
        """The regions that answer; one that does not stops nobody else."""
        found = []
        for name in self.regions:
            try:
                found.append(await self.region(name))
            except Unreachable as error:
                log.info("region left out", region=name, error=str(error))
        return found

    async def look(self, region: Region, volume: VolumeId) -> Disk:
        """A volume, asked freshly; raises Missing, also for one that was deleted."""
        if self.carriers.is_gone(region, volume):
            raise Missing(f"{volume} was deleted; only its snapshots are left")
        return await self.stock.look(region, volume)

    def book_key(self, volume: VolumeId) -> str:
        return f"volume:{volume}"


def assemble(
    regions: Regions,
    clock: Clock,
    *,
    settings: Settings | None = None,
    kube: Kube | None = None,
    book: Book | None = None,
    instance: str = "moxwell-csi",
) -> Driver:
    """A driver from its parts; without Kubernetes it keeps its book in memory."""
    settings = settings or Settings()
    book = book or MemoryBook()
    stock = Stock(settings.owner)
    return Driver(
        regions,
        clock,
        settings,
        book,
        Claims(kube, clock, driver=settings.name, instance=instance),
        Nodes(regions, kube),
        stock,
        Copies(regions, stock, book),
        Carriers(settings.name, settings.owner, settings.shells, book),
        holders=Holders(clock),
        queues=GuestQueues(clock),
    )
