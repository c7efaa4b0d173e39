"""
Every change that the CSI driver makes in Proxmox, as steps (see :mod:`moxwell.pve.steps`).

A step on a disk requires the VMID that the driver expects in the disk's name. A step on the guest
of a node can only change disk slots. A step on a helper VM needs a ``HelperVMRef``,
which is made from a configuration with the helper tag or the owner mark. Steps do not read again
what their caller has read; where a configuration changes, its digest guards the write.
"""

from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

from moxwell.csi.ids import VolumeId, base_name
from moxwell.pve import errors
from moxwell.pve.client import PveWriter
from moxwell.pve.effects import Owned
from moxwell.pve.ownership import Foreign
from moxwell.pve.property_strings import DISK_KEYS
from moxwell.pve.regions import Region
from moxwell.pve.steps import Step
from moxwell.pve.values import Upid

SERVER_WAIT_SECONDS = 30  # how long Proxmox waits before it answers with a task
OWNER = "csi"


async def run(region: Region, step: Step, *, brief: bool = False) -> None:
    """Perform a step and wait for its task, a ``brief`` one closely; raises the task's error."""
    upid = await region.perform(step, OWNER)
    if upid is None:
        return
    ended = await region.tasks.wait_ended(upid, brief=brief)
    if ended.error is not None:
        raise ended.error


class DiskStep(Step, frozen=True, kw_only=True):
    """A step on a disk whose name must have the VMID ``vmid_in_name``."""

    volume: VolumeId
    host: str
    vmid_in_name: int

    @property
    def region(self) -> str:
        return self.volume.region

    @property
    def owned(self) -> Owned:
        proof = f"VMID {self.vmid_in_name} in the name of the disk"
        return Owned(proof, volumes=(base_name(self.volume.disk),))

    def refuse_foreign(self) -> None:
        if self.volume.owner != self.vmid_in_name:
            raise Foreign(f"{self.volume} does not have VMID {self.vmid_in_name} in its name")


class AllocateDisk(DiskStep, frozen=True, kw_only=True):
    """Allocate an empty disk; an existing one of this name is kept."""

    size: int
    format: str = ""

    async def allocate(self, pve: PveWriter) -> str:
        """Allocate the disk and return its volume id, which LINSTOR chooses; raises Exists."""
        self.refuse_foreign()
        return await pve.storage.allocate(
            self.host,
            self.volume.storage,
            vmid=self.vmid_in_name,
            filename=self.volume.disk,
            size=str(self.size // 1024),
            format=self.format or None,
        )

    async def perform(self, pve: PveWriter) -> Upid | None:
        with suppress(errors.Exists):
            await self.allocate(pve)
        return None


class DeleteDisk(DiskStep, frozen=True, kw_only=True):
    """Delete a disk; Proxmox does not check whether a guest uses it."""

    async def perform(self, pve: PveWriter) -> Upid | None:
        self.refuse_foreign()
        return await pve.storage.delete(
            self.host, self.volume.storage, self.volume.volid, delay_seconds=SERVER_WAIT_SECONDS
        )


class CopyDisk(DiskStep, frozen=True, kw_only=True):
    """Copy a disk to a new one; Proxmox allows this to root@pam only."""

    source: VolumeId

    async def perform(self, pve: PveWriter) -> Upid | None:
        self.refuse_foreign()
        other = self.volume.host if self.volume.host not in ("", self.host) else None
        return await pve.storage.copy(
            self.host,
            self.source.storage,
            self.source.volid,
            self.volume.volid,
            target_host=other,
        )


class NodeGuestStep(Step, frozen=True, kw_only=True):
    """A step on the guest of a Kubernetes node, limited to its disk slots."""

    region_name: str
    host: str
    guest: int

    @property
    def region(self) -> str:
        return self.region_name

    @property
    def vmid(self) -> int | None:
        return self.guest

    @property
    def owned(self) -> Owned:
        return Owned("guest of a Kubernetes node with this volume", vmids=(self.guest,))

    def refuse_other_keys(self, *keys: str) -> None:
        other = [key for key in keys if key not in DISK_KEYS]
        if other:
            raise Foreign(f"guest {self.guest}: {', '.join(other)} is not a disk slot")


class UpdateDisks(NodeGuestStep, frozen=True, kw_only=True):
    """Attach, change and detach disks in one configuration write, guarded by the digest."""

    changes: Mapping[str, str]
    delete: tuple[str, ...] = ()
    digest: str

    async def perform(self, pve: PveWriter) -> Upid | None:
        self.refuse_other_keys(*self.changes, *self.delete)
        return await pve.qemu.configure_task(
            self.host,
            self.guest,
            self.changes,
            delete=self.delete,
            digest=self.digest,
            background_delay=SERVER_WAIT_SECONDS,
        )


class RevertDisks(NodeGuestStep, frozen=True, kw_only=True):
    """Revert pending disk changes that the running guest did not accept."""

    slots: tuple[str, ...]

    async def perform(self, pve: PveWriter) -> Upid | None:
        self.refuse_other_keys(*self.slots)
        await pve.qemu.configure(self.host, self.guest, {}, revert=self.slots)
        return None


class ExpandDisk(NodeGuestStep, frozen=True, kw_only=True):
    """Grow an attached disk to a size in MiB."""

    slot: str
    size_mib: int

    async def perform(self, pve: PveWriter) -> Upid | None:
        self.refuse_other_keys(self.slot)
        return await pve.qemu.resize(self.host, self.guest, self.slot, f"{self.size_mib}M")


class HelperVMRef(Struct, frozen=True):
    """A helper VM and the proof that it belongs to the driver."""

    region: str
    host: str
    vmid: int
    proof: str

    def __str__(self) -> str:
        return f"helper VM {self.vmid} in region {self.region}"


class HelperVMStep(Step, frozen=True, kw_only=True):
    """A step on a helper VM."""

    vm: HelperVMRef

    @property
    def region(self) -> str:
        return self.vm.region

    @property
    def vmid(self) -> int | None:
        return self.vm.vmid

    @property
    def owned(self) -> Owned:
        return Owned(self.vm.proof, vmids=(self.vm.vmid,))


def named_description(vmid: int, text: str) -> str:
    """A description that names the VMID, so that a clone made by hand is known as such."""
    return f"csi-vmid={vmid}\n{text}"


class CreateHelperVM(HelperVMStep, frozen=True, kw_only=True):
    """Create a stopped guest; raises Exists if the VMID is in use."""

    description: str
    config: Mapping[str, str | int]

    async def perform(self, pve: PveWriter) -> Upid | None:
        config = {
            **self.config,
            "description": named_description(self.vm.vmid, self.description),
        }
        return await pve.qemu.create(self.vm.host, self.vm.vmid, config)


class CloneHelperVM(HelperVMStep, frozen=True, kw_only=True):
    """Clone a helper VM on the same host to a new VMID; raises Exists if it is in use."""

    source: int
    name: str
    description: str
    full: bool
    storage: str = ""
    format: str = ""
    snapshot: str = ""

    async def perform(self, pve: PveWriter) -> Upid | None:
        return await pve.qemu.clone(
            self.vm.host,
            self.source,
            self.vm.vmid,
            name=self.name,
            description=named_description(self.vm.vmid, self.description),
            full=self.full,
            storage=self.storage or None,
            format=self.format or None,
            snapname=self.snapshot or None,
        )


class ConfigureHelperVM(HelperVMStep, frozen=True, kw_only=True):
    """Change the configuration of a helper VM."""

    changes: Mapping[str, str] = {}
    delete: tuple[str, ...] = ()
    digest: str = ""

    async def perform(self, pve: PveWriter) -> Upid | None:
        await pve.qemu.configure(
            self.vm.host,
            self.vm.vmid,
            self.changes,
            delete=self.delete,
            digest=self.digest or None,
        )
        return None


class MigrateHelperVM(HelperVMStep, frozen=True, kw_only=True):
    """Migrate a helper VM with its local disk to another host."""

    target: str

    async def perform(self, pve: PveWriter) -> Upid | None:
        return await pve.qemu.migrate(self.vm.host, self.vm.vmid, self.target)


class DestroyHelperVM(HelperVMStep, frozen=True, kw_only=True):
    """Destroy a helper VM and the disk that has its VMID in the name."""

    async def perform(self, pve: PveWriter) -> Upid | None:
        return await pve.qemu.delete(self.vm.host, self.vm.vmid, purge=True)


class CreateNativeSnapshot(HelperVMStep, frozen=True, kw_only=True):
    """Take a snapshot of a helper VM, and so of its disk."""

    name: str
    description: str

    async def perform(self, pve: PveWriter) -> Upid | None:
        return await pve.snapshots.create(
            self.vm.host, self.vm.vmid, self.name, description=self.description
        )


class DeleteNativeSnapshot(HelperVMStep, frozen=True, kw_only=True):
    """Delete a snapshot of a helper VM."""

    name: str

    async def perform(self, pve: PveWriter) -> Upid | None:
        return await pve.snapshots.delete(self.vm.host, self.vm.vmid, self.name)


class ReplicationStep(HelperVMStep, frozen=True, kw_only=True):
    """A step on a replication job of a helper VM; the job id is ``<vmid>-<number>``."""

    job: str

    def refuse_other_guest(self) -> None:
        if self.job.partition("-")[0] != str(self.vm.vmid):
            raise Foreign(f"replication job {self.job} does not belong to {self.vm}")


class EnsureReplicationJob(ReplicationStep, frozen=True, kw_only=True):
    """Create a replication job, or set the schedule of an existing one."""

    target: str
    schedule: str

    async def perform(self, pve: PveWriter) -> Upid | None:
        self.refuse_other_guest()
        try:
            await pve.replication.create(self.job, self.target, schedule=self.schedule)
        except errors.Exists:
            await pve.replication.update(self.job, schedule=self.schedule)
        return None


class SetReplicationSchedule(ReplicationStep, frozen=True, kw_only=True):
    """Change the schedule of a replication job."""

    schedule: str

    async def perform(self, pve: PveWriter) -> Upid | None:
        self.refuse_other_guest()
        await pve.replication.update(self.job, schedule=self.schedule)
        return None


class DeleteReplicationJob(ReplicationStep, frozen=True, kw_only=True):
    """Delete a replication job; ``force`` leaves the replica on a host that is offline."""

    force: bool = False

    async def perform(self, pve: PveWriter) -> Upid | None:
        self.refuse_other_guest()
        await pve.replication.delete(self.job, force=self.force or None)
        return None
