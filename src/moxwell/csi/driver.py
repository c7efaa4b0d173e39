"""
The parts of a CSI controller as one value, which every operation receives.

The driver's name is a setting: existing volumes of proxmox-csi-plugin carry that driver's name, and
a controller under it serves them.
"""

from dataclasses import dataclass, field

import structlog

from moxwell.clock import Clock
from moxwell.csi.attach_queue import GuestQueues
from moxwell.csi.attachments import AttachmentIndex
from moxwell.csi.disks import DiskInfo, DiskStore
from moxwell.csi.errors import FailedPrecondition
from moxwell.csi.full_copies import CopyJobs
from moxwell.csi.helper_vms import HelperVM, HelperVMs
from moxwell.csi.ids import VolumeId
from moxwell.csi.journal import MemoryJournal, VolumeJournal
from moxwell.csi.nodes import GuestCheck, NodeLookup
from moxwell.csi.ownership import EarlierVolumes, ForeignVolume, TenantIdentity, VolumeOwnership
from moxwell.csi.pvc import PersistentVolumes
from moxwell.csi.singleflight import SingleFlight
from moxwell.csi.snapshot_index import SnapshotIndex
from moxwell.errors import Invalid, Missing, Unreachable
from moxwell.kube.client import Kube
from moxwell.pve.regions import Region, Regions

NAME = "csi.moxwell.dev"
PROXMOX_CSI_PLUGIN_NAME = "csi.proxmox.sinextra.dev"
OWNER = 9999
log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class DriverSettings:
    """The configurable settings of a driver."""

    name: str = NAME
    owner: int = OWNER  # the VMID in disk names; no guest has it
    helper_vmids: tuple[int, int] = (10_000, 99_999)
    tenant: str = ""  # empty: the UID of the namespace kube-system
    static_volumes: tuple[str, ...] = ()  # patterns of volume ids that the driver did not create
    own_by_prefix: bool = False  # own every disk with the VMID and without a tenant key
    every_tenant: bool = False  # own the volumes of all tenants; for commands of the operator

    def __post_init__(self) -> None:
        if not 100 < self.owner <= 999_999_999:
            raise Invalid(f"controllerVMID must be above 100, not {self.owner}")


@dataclass(frozen=True)
class Driver:
    """The parts of a controller."""

    regions: Regions
    clock: Clock
    settings: DriverSettings
    journal: VolumeJournal
    persistent_volumes: PersistentVolumes
    nodes: NodeLookup
    disks: DiskStore
    copies: CopyJobs
    helper_vms: HelperVMs
    ownership: VolumeOwnership
    clone_tasks: SingleFlight[HelperVM] = field(default_factory=SingleFlight)
    snapshot_index: SnapshotIndex = field(default_factory=SnapshotIndex)
    attachments: AttachmentIndex = field(default_factory=AttachmentIndex)
    queues: GuestQueues = field(kw_only=True)

    async def region(self, name: str) -> Region:
        """A region with a synced inventory; raises Unreachable if it was never reached."""
        region = self.regions[name]
        if not region.inventory.synced:
            await region.inventory.refresh()
        if not region.inventory.synced:
            raise Unreachable(f"region {name} is unreachable: {region.problem}")
        return region

    async def own(self, volume: VolumeId) -> Region:
        """The region of a volume of this tenant; raises ForeignVolume, or Missing without disk."""
        region = await self.region(volume.region)
        try:
            await self.ownership.prove(region, volume)
        except ForeignVolume:
            await self.disks.read(region, volume)
            raise
        return region

    async def all_regions(self) -> list[Region]:
        """The reachable regions."""
        found = []
        for name in self.regions:
            try:
                found.append(await self.region(name))
            except Unreachable as error:
                log.info("region skipped", region=name, error=str(error))
        return found

    async def read_disk(self, region: Region, volume: VolumeId) -> DiskInfo:
        """Read a volume's disk; raises Missing, also for a volume kept only for its snapshots."""
        if self.helper_vms.is_deleted(region, volume):
            raise Missing(f"{volume} is deleted; only its snapshots exist")
        return await self.disks.read(region, volume)

    async def refuse_foreign(self, region: Region, volume: VolumeId) -> None:
        """Raise if the disk exists, because it belongs to a guest that is not a helper VM."""
        try:
            await self.disks.read(region, volume)
        except Missing:
            return
        raise FailedPrecondition(
            f"{volume} belongs to guest {volume.owner}, which is not a helper VM"
        )

    def journal_key(self, volume: VolumeId) -> str:
        return f"volume:{volume}"


def assemble(
    regions: Regions,
    clock: Clock,
    *,
    settings: DriverSettings | None = None,
    kube: Kube | None = None,
    journal: VolumeJournal | None = None,
    record: VolumeJournal | None = None,
    guests: GuestCheck | None = None,
    instance: str = "moxwell-csi",
) -> Driver:
    """
    Build a driver; without a journal, its entries are kept in memory.

    ``record`` keeps what proves volumes of earlier versions; it defaults to the journal, which is
    right where users of the cluster cannot write the driver's namespace.
    """
    settings = settings or DriverSettings()
    journal = journal or MemoryJournal()
    disks = DiskStore(settings.owner)
    helper_vms = HelperVMs(settings.name, settings.owner, settings.helper_vmids, journal)
    return Driver(
        regions,
        clock,
        settings,
        journal,
        PersistentVolumes(kube, clock, driver=settings.name, instance=instance),
        NodeLookup(regions, kube, guests),
        disks,
        CopyJobs(regions, disks, journal),
        helper_vms,
        _ownership(settings, helper_vms, kube, record or journal),
        attachments=AttachmentIndex(clock),
        queues=GuestQueues(clock),
    )


def _ownership(
    settings: DriverSettings, helper_vms: HelperVMs, kube: Kube | None, record: VolumeJournal
) -> VolumeOwnership:
    identity = TenantIdentity(settings.name, settings.tenant, kube)
    return VolumeOwnership(
        identity,
        helper_vms,
        EarlierVolumes(identity, kube, record),
        owner=settings.owner,
        static=lambda: settings.static_volumes,
        by_prefix=settings.own_by_prefix,
        every_tenant=settings.every_tenant,
    )
