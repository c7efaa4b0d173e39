"""
Creates disks from volumes and snapshots by cloning helper VMs in Proxmox; needs no root.

On a storage with native snapshots a volume is cloned from a temporary snapshot; otherwise the clone
is a full copy of a disk that no running guest uses. Cloning can take hours: it continues when the
caller's deadline passes, and the next call waits for it or finds its result.
"""

from dataclasses import dataclass

import structlog

from moxwell.csi import native_snapshots, steps
from moxwell.csi.driver import Driver
from moxwell.csi.errors import OperationPending
from moxwell.csi.helper_vms import COPY_TAG, HelperVM, HelperVMRequest, guest_name
from moxwell.csi.ids import VolumeId
from moxwell.csi.steps import HelperVMRef, HelperVMStep
from moxwell.csi.storage_features import StorageFeatures
from moxwell.errors import Busy, MoxwellError, Unreachable
from moxwell.pve.ownership import Mark
from moxwell.pve.regions import Region

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class CloneRequest:
    """A disk to create from another disk."""

    name: str  # of the volume or snapshot that it becomes
    mark: Mark
    tenant: str
    source: VolumeId
    features: StorageFeatures
    snapshot: str = ""  # of the source; empty: its current content
    linked: bool = False
    storage: str = ""  # empty: the storage of the source
    format: str = ""
    tag: str = COPY_TAG
    source_id: str = ""  # volume or snapshot id as in the CSI call
    size: int = 0  # of the source
    created: int = 0  # seconds since 1970
    host: str = ""  # for a local disk; empty: the host of the source

    @property
    def temporary_snapshot(self) -> str:
        """The name of the snapshot that exists only while cloning; empty if none is needed."""
        if self.snapshot or not self.features.native:
            return ""
        return f"{native_snapshots.TEMPORARY_PREFIX}{self.mark.key[:16]}"

    @property
    def is_linked(self) -> bool:
        """A linked clone must not depend on a temporary snapshot."""
        return self.linked and (self.features.independent_clones or not self.temporary_snapshot)

    @property
    def method(self) -> str:
        return "linked clone" if self.is_linked else "full clone"

    @property
    def description(self) -> str:
        what = "snapshot" if self.tag != COPY_TAG else "volume"
        return self.mark.describe(
            f"csi-tenant={self.tenant}\n"
            f"Owns the disk of a Kubernetes {what}; never started. Do not remove it by hand.\n"
            f"csi-name={self.name}\ncsi-source={self.source_id}\ncsi-size={self.size}\n"
            f"csi-made={self.created}\ncsi-by={self.method}"
        )


async def create(driver: Driver, region: Region, request: CloneRequest) -> HelperVM:
    """Clone a disk, or wait for the clone in progress; continues if the caller is cancelled."""
    return await driver.clone_tasks.do(request.mark.key, lambda: _create(driver, region, request))


async def find(driver: Driver, region: Region, mark: Mark) -> HelperVM | None:
    """The finished clone with an owner mark; raises ForeignVolume if another tenant has it."""
    if await driver.helper_vms.is_pending(mark):
        return None
    return await _find_own(driver, region, mark)


async def _find_own(driver: Driver, region: Region, mark: Mark) -> HelperVM | None:
    found = await driver.helper_vms.find(region, mark)
    if found is not None:
        await driver.ownership.refuse_vm(region, found)
    return found


async def _create(driver: Driver, region: Region, request: CloneRequest) -> HelperVM:
    try:
        with driver.helper_vms.using(request.source):
            vm = await _clone(driver, region, request)
        vm = await migrate(region, vm, request.host)
    except (Unreachable, Busy):
        raise  # the clone may still succeed: keep everything for the next attempt
    except MoxwellError:
        await _clean_up(driver, region, request)
        raise
    await _clean_up(driver, region, request)
    await driver.helper_vms.finish(request.mark)
    return vm


async def _clone(driver: Driver, region: Region, request: CloneRequest) -> HelperVM:
    found = await _find_own(driver, region, request.mark)
    if found is not None:
        return found
    async with driver.helper_vms.lock(request.source):
        source_vm = await driver.helper_vms.ensure(
            region, request.source, request.host, tenant=request.tenant
        )
        if request.temporary_snapshot:
            await native_snapshots.create(
                region, source_vm, request.temporary_snapshot, "Temporary, for a clone."
            )
    log.info(
        "clone started",
        source=str(request.source),
        name=request.name,
        by=request.method,
        snapshot=request.snapshot or request.temporary_snapshot,
    )

    def step(vm: HelperVMRef) -> HelperVMStep:
        return steps.CloneHelperVM(
            vm=vm,
            source=source_vm.vmid,
            name=guest_name(f"csi-{request.name}"),
            description=request.description,
            full=not request.is_linked,
            storage="" if request.is_linked else request.storage,
            format="" if request.is_linked else request.format,
            snapshot=request.snapshot or request.temporary_snapshot,
        )

    return await driver.helper_vms.create(
        region,
        HelperVMRequest(request.mark, source_vm.host, request.tag, source_vm.vmid, step),
    )


async def migrate(region: Region, vm: HelperVM, host: str) -> HelperVM:
    """Migrate a helper VM with its local disk to a host."""
    if not host or vm.host == host or not vm.volume_id(region).host:
        return vm
    if vm.config.lock:
        raise OperationPending(f"guest {vm.vmid} is locked ({vm.config.lock})")
    log.info("helper VM migration started", guest=vm.vmid, disk=vm.volid, to=host)
    await steps.run(region, steps.MigrateHelperVM(vm=vm.ref(region), target=host))
    region.inventory.learn(vm.vmid, host=host)
    return HelperVM(vm.vmid, host, await region.reader.qemu.config(host, vm.vmid))


async def _clean_up(driver: Driver, region: Region, request: CloneRequest) -> None:
    """Delete the temporary snapshot, and the source's helper VM if nothing else needs it."""
    async with driver.helper_vms.lock(request.source):
        source_vm = await driver.helper_vms.find_for(region, request.source)
        if source_vm is None:
            return
        if request.temporary_snapshot:
            await native_snapshots.delete(region, source_vm, request.temporary_snapshot)
        await native_snapshots.clean_up(driver, region, request.source, source_vm)
