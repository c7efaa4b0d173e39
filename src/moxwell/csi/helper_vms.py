"""
Helper VMs: stopped guests that own or reference a disk, so that Proxmox can act on it.

Proxmox snapshots, clones and migrates guests, not single disks. A volume with snapshots gets a
helper VM that references its disk; a clone of that helper VM owns a new disk, which is the new
volume. A helper VM is never started. Its VMID is in the journal before it is created, so a crash
never leaves two. Proxmox destroys with a guest only the disks that have its VMID in their name, so
destroying a helper VM that only references a disk keeps the disk.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import NAMESPACE_URL, uuid5

from moxwell.csi import active_tasks, steps
from moxwell.csi.disks import any_host
from moxwell.csi.errors import FailedPrecondition, OperationPending
from moxwell.csi.ids import VolumeId
from moxwell.csi.journal import HELPER_VM_KEY, VolumeJournal
from moxwell.csi.steps import HelperVMRef, HelperVMStep
from moxwell.errors import Busy, Missing, MoxwellError, Unreachable
from moxwell.pve import errors, ownership
from moxwell.pve.guests import GuestConfig
from moxwell.pve.ownership import HELPER_VM_TAG, Mark, is_helper_vm
from moxwell.pve.regions import Region
from moxwell.scheduling.vmids import VmidRange, choose_vmid

SLOT = "scsi1"
REFERENCE_TAG = "moxwell-csi-reference"  # references a volume that has snapshots or clones
COPY_TAG = "moxwell-csi-copy"  # owns a volume that was cloned or restored
SNAPSHOT_TAG = "moxwell-csi-snapshot"  # owns a full copy that is a snapshot
REPLICA_TAG = "moxwell-csi-replica"  # owns a replicated volume
DELETED_TAG = "moxwell-csi-deleted"  # its volume is deleted, its snapshots are not
_OLD_TAGS = {"moxwell-csi-carrier": REFERENCE_TAG, "moxwell-csi-gone": DELETED_TAG}
_CREATION_TASKS = frozenset({"qmcreate", "qmclone"})


def current_tags(tags: Iterable[str]) -> frozenset[str]:
    """The tags of a guest, with those that earlier versions set replaced by their current names."""
    return frozenset(_OLD_TAGS.get(tag, tag) for tag in tags)


@dataclass(frozen=True)
class HelperVM:
    """A helper VM with the configuration that was read."""

    vmid: int
    host: str
    config: GuestConfig

    @property
    def volid(self) -> str:
        """The Proxmox volume id of the disk."""
        return self.config.get(SLOT).partition(",")[0]

    @property
    def tags(self) -> frozenset[str]:
        return current_tags(self.config.tags)

    @property
    def is_reference(self) -> bool:
        return REFERENCE_TAG in self.tags

    @property
    def is_volume_deleted(self) -> bool:
        return DELETED_TAG in self.tags

    def volume_id(self, region: Region) -> VolumeId:
        """The volume id of the disk; the host is part of it unless the storage is shared."""
        storage, _, disk = self.volid.partition(":")
        seen = region.inventory.storage(self.host, storage)
        host = "" if seen is not None and seen.shared else self.host
        return VolumeId(region.name, host, storage, disk)

    def field(self, key: str) -> str:
        """The value of the line ``csi-KEY=…`` in the description."""
        return description_field(self.config.description, key)

    @property
    def is_copy(self) -> bool:
        """Whether it was cloned by hand; descriptions of earlier versions name no VMID."""
        return self.field("vmid") not in ("", str(self.vmid))

    def ref(self, region: Region) -> HelperVMRef:
        """The target of a step; raises Foreign for a guest that is not a helper VM."""
        if self.is_copy:
            origin = self.field("vmid")
            raise ownership.Foreign(f"guest {self.vmid} is a copy of helper VM {origin}")
        if is_helper_vm(self.config.tags):
            proof = "helper VM tag"
        elif ownership.owner_in_description(self.config.description) is not None:
            proof = "owner mark in the description"
        else:
            raise ownership.Foreign(f"guest {self.vmid} is not a helper VM of the CSI driver")
        return HelperVMRef(region.name, self.host, self.vmid, proof)


def description_field(text: str, key: str) -> str:
    """The value of the line ``csi-KEY=…`` in a description."""
    found = (line for line in text.splitlines() if line.startswith(f"csi-{key}="))
    return next(found, "").partition("=")[2].strip()


@dataclass(frozen=True)
class HelperVMRequest:
    """A helper VM to create."""

    mark: Mark
    host: str
    tag: str
    source_vmid: int  # the guest it is cloned from, 0 if it is created
    step: Callable[[HelperVMRef], HelperVMStep]


class HelperVMs:
    """Finds, creates and destroys helper VMs."""

    def __init__(
        self, driver: str, owner: int, vmids: tuple[int, int], journal: VolumeJournal
    ) -> None:
        self._driver, self._owner, self._journal = driver, owner, journal
        self._vmids = VmidRange(*vmids)
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: Counter[str] = Counter()

    def mark(self, region: str, name: str) -> Mark:
        """The owner mark derived from a name; the same name gives the same helper VM."""
        return Mark(str(uuid5(NAMESPACE_URL, f"{self._driver}/{region}/{name}")))

    def is_marked_by_driver(self, region: Region, vm: "HelperVM") -> bool:
        """Return whether the mark is the one that the driver derives from the name."""
        name, source = vm.field("name"), vm.field("source")
        moved = (f"moved/{source}/{host}" for host in region.inventory.hosts)
        names = (name, f"snapshot/{name}", *moved)
        return any(ownership.is_ours(vm.config, self.mark(region.name, n)) for n in names)

    def mark_of(self, volume: VolumeId) -> Mark:
        """The mark of the helper VM that references a volume."""
        return self.mark(volume.region, f"carrier/{volume}")  # the word is in stored marks

    def lock(self, volume: VolumeId) -> asyncio.Lock:
        return self._locks.setdefault(str(volume), asyncio.Lock())

    @contextmanager
    def using(self, volume: VolumeId) -> Iterator[None]:
        """Prevent the clean-up of the volume's helper VM inside the block."""
        self._users[str(volume)] += 1
        try:
            yield
        finally:
            self._users[str(volume)] -= 1

    def is_in_use(self, volume: VolumeId) -> bool:
        return self._users[str(volume)] > 0

    # ------------------------------------------------------------------ find

    async def find(self, region: Region, mark: Mark) -> HelperVM | None:
        """The helper VM with an owner mark, found by tag and verified by its description."""
        for guest in region.inventory.find_by_owner(mark.key):
            found = await self.read(region, guest.vmid)
            if found is not None and ownership.is_ours(found.config, mark) and not found.is_copy:
                return found
        return None

    def is_owner(self, volume: VolumeId) -> bool:
        """Return whether the disk's name has the VMID of a guest rather than the driver's."""
        return volume.owner not in (0, self._owner)

    async def find_for(self, region: Region, volume: VolumeId) -> HelperVM | None:
        """The helper VM that owns or references a volume."""
        if not self.is_owner(volume):
            return await self.find(region, self.mark_of(volume))
        found = await self.read(region, volume.owner)
        if found is None or not is_helper_vm(found.config.tags):
            return None
        return found if found.config.slot_of(volume.volid) is not None else None

    async def read(self, region: Region, vmid: int) -> HelperVM | None:
        """Read a guest on whatever host it is; None only if the VMID does not exist."""
        for _ in range(2):
            guest = region.inventory.find(vmid)
            if guest is not None:
                try:
                    config = await region.reader.qemu.config(guest.host, vmid)
                    return HelperVM(vmid, guest.host, config)
                except Missing:
                    pass
            await region.inventory.refresh()
        if await region.inventory.is_gone(vmid):
            region.inventory.learn_destroyed(vmid)
            return None
        raise OperationPending(f"guest {vmid} is being created or migrated")

    def is_deleted(self, region: Region, volume: VolumeId) -> bool:
        """Return whether a volume is deleted and only kept for its snapshots; sends no request."""
        if self.is_owner(volume):
            guest = region.inventory.find(volume.owner)
            found = [guest] if guest is not None and is_helper_vm(guest.tags) else []
        else:
            found = list(region.inventory.find_by_owner(self.mark_of(volume).key))
        return any(DELETED_TAG in current_tags(guest.tags) for guest in found)

    # ------------------------------------------------------------------ create

    async def ensure(
        self, region: Region, volume: VolumeId, near: str = "", *, tenant: str
    ) -> HelperVM:
        """The helper VM of a volume, created if missing; the caller holds the volume's lock."""
        found = await self.find_for(region, volume)
        if found is not None:
            await self.finish(self.mark_of(volume))  # a crash may have left the journal entry
            return found
        if self.is_owner(volume):
            raise FailedPrecondition(
                f"{volume} belongs to guest {volume.owner}, which is not a helper VM"
            )
        mark = self.mark_of(volume)
        host = volume.host or near or any_host(region, volume.storage)
        description = mark.describe(
            f"csi-tenant={tenant}\ncsi-volume={volume}\n"
            f"Makes snapshots and clones of volume {volume} possible; never started."
        )
        config: dict[str, str | int] = {
            "name": guest_name(f"csi-reference-{volume.name}"),
            "tags": mark.tags((HELPER_VM_TAG, REFERENCE_TAG)),
            "protection": 1,
            SLOT: f"{volume.volid},backup=0,replicate=0",
        }

        def step(vm: HelperVMRef) -> HelperVMStep:
            return steps.CreateHelperVM(vm=vm, description=description, config=config)

        created = await self.create(region, HelperVMRequest(mark, host, REFERENCE_TAG, 0, step))
        await self.finish(mark)
        return created

    async def create(self, region: Region, request: HelperVMRequest) -> HelperVM:
        """Create a helper VM, or return the one that an earlier attempt created."""
        key = HELPER_VM_KEY + request.mark.key
        vmid = self._journalled(await self._journal.get(key))
        if vmid:
            earlier = await self._resume(region, request, vmid)
            if earlier is not None:
                return await self._set_tags(region, request, earlier)
        if not vmid or region.inventory.find(vmid) is not None:
            await region.inventory.refresh()
            vmid = choose_vmid(self._vmids, region.inventory.guests, seed=request.mark.key)
            await self._journal.put(key, {"vmid": str(vmid)})
        await self._perform(region, request, vmid)
        config = await region.reader.qemu.config(request.host, vmid)
        return await self._set_tags(region, request, HelperVM(vmid, request.host, config))

    def _journalled(self, entry: Mapping[str, str]) -> int:
        """The VMID in a journal entry; 0 if it is not one that the driver chooses."""
        text = entry.get("vmid") or ""
        vmid = int(text) if text.isdecimal() and len(text) < 10 else 0
        return vmid if vmid in self._vmids else 0

    async def finish(self, mark: Mark) -> None:
        """Delete the journal entry of a helper VM that is complete."""
        await self._journal.delete(HELPER_VM_KEY + mark.key)

    async def is_pending(self, mark: Mark) -> bool:
        return bool(await self._journal.get(HELPER_VM_KEY + mark.key))

    async def _perform(self, region: Region, request: HelperVMRequest, vmid: int) -> None:
        vm = HelperVMRef(region.name, request.host, vmid, "VMID reserved in the journal")
        try:
            await steps.run(region, request.step(vm))
        except errors.Exists as error:
            await region.inventory.refresh()
            raise OperationPending(f"guest {vmid} already exists: {error}") from error
        except (Unreachable, Busy):
            raise
        except errors.PermissionDenied as error:
            await self.finish(request.mark)
            raise errors.PermissionDenied(
                f"{error}; snapshots and clones need VM.Allocate, VM.Clone, VM.Snapshot, "
                "VM.Config.Disk and VM.Config.Options on /vms, and Datastore.AllocateSpace"
            ) from error
        except MoxwellError:
            await self.finish(request.mark)
            raise

    async def _resume(self, region: Region, request: HelperVMRequest, vmid: int) -> HelperVM | None:
        """The result of an earlier attempt; raises OperationPending while it is running."""
        ids = {str(vmid), str(request.source_vmid)}
        for host, seen in region.inventory.hosts.items():
            for row in await active_tasks.running(region, host) if seen.online else ():
                if row.type in _CREATION_TASKS and row.id in ids:
                    raise OperationPending(f"guest {vmid} is being created ({row.type})")
        found = await self.read(region, vmid)
        if found is None:
            return None
        lock = found.config.lock
        if ownership.is_ours(found.config, request.mark) and not lock:
            return found
        if lock in ("clone", "create"):
            raise FailedPrecondition(
                f"guest {vmid} is still locked ({lock}) by Proxmox; unlock and destroy it"
            )
        return None

    async def _set_tags(self, region: Region, request: HelperVMRequest, vm: HelperVM) -> HelperVM:
        """Set the tags of a new helper VM; a clone inherits those of its source."""
        tags = request.mark.tags((HELPER_VM_TAG, request.tag))
        if {*vm.config.tags} != {*tags.split(";")}:
            ownership.verify(vm.config, request.mark, f"guest {vm.vmid}")
            changes = {"tags": tags}
            step = steps.ConfigureHelperVM(
                vm=vm.ref(region), changes=changes, digest=vm.config.digest
            )
            await steps.run(region, step)
            vm = replace(vm, config=GuestConfig({**vm.config.raw, **changes}))
        region.inventory.learn(vm.vmid, host=vm.host, tags=tuple(tags.split(";")))
        return vm

    # ------------------------------------------------------------------ delete

    async def mark_deleted(self, region: Region, vm: HelperVM) -> None:
        """Record that the volume is deleted and the helper VM only keeps its snapshots."""
        tags = tuple(dict.fromkeys((*vm.config.tags, DELETED_TAG)))
        step = steps.ConfigureHelperVM(
            vm=vm.ref(region), changes={"tags": ";".join(tags)}, digest=vm.config.digest
        )
        await steps.run(region, step)
        region.inventory.learn(vm.vmid, host=vm.host, tags=tags)

    async def destroy(self, region: Region, vm: HelperVM) -> None:
        """Destroy a helper VM, and with it the disk that it owns."""
        ref = vm.ref(region)
        try:
            if vm.config.protected:
                await steps.run(region, steps.ConfigureHelperVM(vm=ref, delete=("protection",)))
            await steps.run(region, steps.DestroyHelperVM(vm=ref))
        except Missing:
            pass
        region.inventory.learn_destroyed(vm.vmid)


def guest_name(text: str) -> str:
    """A name that Proxmox accepts: letters, digits and dashes."""
    cleaned = "".join(c if c.isalnum() else "-" for c in text.lower())
    return cleaned[:60].strip("-")
