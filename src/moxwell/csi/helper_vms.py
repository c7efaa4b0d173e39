"""
Carriers: stopped guests of ours that own or name a disk, so that Proxmox will act on it.

Proxmox snapshots and clones guests, never single disks. So a volume that gets a snapshot gets a
guest that names it and never runs; a clone of that guest is a new guest with a new disk, and that
disk is the new volume. In: volumes. Out: their carriers, found by mark, made once. Which id a guest
will get is in the book before it is asked for, so a crash never leaves two. The surprise: Proxmox
deletes with a guest only the disks that bear its id, so a carrier may go and its volume stays.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import NAMESPACE_URL, uuid5

from moxwell.csi import active_tasks
from moxwell.csi.disks import any_host
from moxwell.csi.errors import NotNow, UnderWay
from moxwell.csi.ids import VolumeId
from moxwell.csi.journal import Book
from moxwell.errors import Busy, Missing, MoxwellError, Unreachable
from moxwell.pve import errors, ownership
from moxwell.pve.guests import GuestConfig
from moxwell.pve.ownership import SHELL_TAG, Mark
from moxwell.pve.regions import Region
from moxwell.pve.values import Upid
from moxwell.scheduling.vmids import VmidRange, choose_vmid

SLOT = "scsi1"
CARRIER_TAG = "moxwell-csi-carrier"  # names a volume that has snapshots
COPY_TAG = "moxwell-csi-copy"  # owns a volume that was cloned or restored
SNAPSHOT_TAG = "moxwell-csi-snapshot"  # owns a full copy that is a snapshot
REPLICA_TAG = "moxwell-csi-replica"  # owns a volume that is replicated
GONE_TAG = "moxwell-csi-gone"  # its volume was deleted; its snapshots were not
_BIRTHS = frozenset({"qmcreate", "qmclone"})
Start = Callable[[int], Awaitable[Upid]]


@dataclass(frozen=True)
class Carrier:
    """A guest that carries a disk."""

    vmid: int
    host: str
    config: GuestConfig

    @property
    def drive(self) -> str:
        """The volume id of the disk, as Proxmox writes it."""
        return self.config.get(SLOT).partition(",")[0]

    @property
    def is_gone(self) -> bool:
        return GONE_TAG in self.config.tags

    def disk_id(self, region: Region) -> VolumeId:
        """The disk as a volume; a disk of one host is named with it."""
        storage, _, disk = self.drive.partition(":")
        seen = region.inventory.storage(self.host, storage)
        host = "" if seen is not None and seen.shared else self.host
        return VolumeId(region.name, host, storage, disk)

    def note(self, key: str) -> str:
        """A line ``csi-KEY=…`` of the description."""
        return note_in(self.config.description, key)


def note_in(text: str, key: str) -> str:
    found = (line for line in text.splitlines() if line.startswith(f"csi-{key}="))
    return next(found, "").partition("=")[2].strip()


@dataclass(frozen=True)
class Birth:
    """A guest that is to come into being."""

    mark: Mark
    host: str
    kind: str  # its tag
    parent: int  # the guest it is cloned from, 0 if it is made
    start: Start


class Carriers:
    """Finds, makes and removes them."""

    def __init__(self, driver: str, owner: int, within: tuple[int, int], book: Book) -> None:
        self._driver, self._owner, self._book = driver, owner, book
        self._within = VmidRange(*within)
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: Counter[str] = Counter()

    def mark(self, region: str, name: str) -> Mark:
        """An identity made from a name: the same name is the same guest."""
        return Mark(str(uuid5(NAMESPACE_URL, f"{self._driver}/{region}/{name}")))

    def mark_of(self, volume: VolumeId) -> Mark:
        return self.mark(volume.region, f"carrier/{volume}")

    def lock(self, volume: VolumeId) -> asyncio.Lock:
        return self._locks.setdefault(str(volume), asyncio.Lock())

    @contextmanager
    def using(self, volume: VolumeId) -> Iterator[None]:
        """While this lasts nobody tidies the volume's carrier away."""
        self._users[str(volume)] += 1
        try:
            yield
        finally:
            self._users[str(volume)] -= 1

    def is_used(self, volume: VolumeId) -> bool:
        return self._users[str(volume)] > 0

    # ------------------------------------------------------------------ finding

    async def find(self, region: Region, mark: Mark) -> Carrier | None:
        """The guest of a mark: tags lead to it, its description proves it."""
        for guest in region.inventory.find_by_owner(mark.key):
            found = await self.read(region, guest.vmid)
            if found is not None and ownership.is_ours(found.config, mark):
                return found
        return None

    def owns(self, volume: VolumeId) -> bool:
        """Does a guest's id stand in the disk's name, rather than the driver's own?"""
        return volume.owner not in (0, self._owner)

    async def of(self, region: Region, volume: VolumeId) -> Carrier | None:
        """Who carries a volume: the guest that owns it, or one that was made to name it."""
        if not self.owns(volume):
            return await self.find(region, self.mark_of(volume))
        found = await self.read(region, volume.owner)
        if found is None or SHELL_TAG not in found.config.tags:
            return None
        return found if found and found.config.slot_of(volume.volid) is not None else None

    async def read(self, region: Region, vmid: int) -> Carrier | None:
        """A guest as it is now, wherever it went; None only if there is none of this id."""
        for _ in range(2):
            guest = region.inventory.find(vmid)
            if guest is not None:
                try:
                    config = await region.pve.qemu.config(guest.host, vmid)
                    return Carrier(vmid, guest.host, config)
                except Missing:
                    pass
            await region.inventory.refresh()
        if await region.inventory.is_gone(vmid):
            region.inventory.learn_gone(vmid)
            return None
        raise UnderWay(f"guest {vmid} is being made or moved")

    def is_gone(self, region: Region, volume: VolumeId) -> bool:
        """Was the volume deleted, and is only kept for its snapshots? Costs no request."""
        if self.owns(volume):
            guest = region.inventory.find(volume.owner)
            return guest is not None and {GONE_TAG, SHELL_TAG} <= {*guest.tags}
        known = region.inventory.find_by_owner(self.mark_of(volume).key)
        return any(GONE_TAG in guest.tags for guest in known)

    # ------------------------------------------------------------------ making

    async def need(self, region: Region, volume: VolumeId, near: str = "") -> Carrier:
        """The carrier of a volume; made if there is none. Call under the volume's lock."""
        found = await self.of(region, volume)
        if found is not None:
            await self.born(self.mark_of(volume))  # if a kill came in between
            return found
        if self.owns(volume):
            raise NotNow(f"{volume} belongs to guest {volume.owner}, which is not the driver's")
        mark = self.mark_of(volume)
        host = volume.host or near or any_host(region, volume.storage)
        settings: dict[str, str | int] = {
            "name": guest_name(f"csi-carrier-{volume.name}"),
            "description": mark.describe(
                f"Lets the volume {volume} have snapshots and clones; never started.\n"
                f"csi-volume={volume}"
            ),
            "tags": mark.tags((SHELL_TAG, CARRIER_TAG)),
            "protection": 1,
            SLOT: f"{volume.volid},backup=0,replicate=0",
        }

        async def start(vmid: int) -> Upid:
            return await region.pve.qemu.create(host, vmid, settings)

        made = await self.bear(region, Birth(mark, host, CARRIER_TAG, 0, start))
        await self.born(mark)
        return made

    async def bear(self, region: Region, birth: Birth) -> Carrier:
        """The guest of a birth: the one that an earlier try began, or a new one."""
        key = f"birth:{birth.mark.key}"
        vmid = int((await self._book.get(key)).get("vmid") or 0)
        if vmid:
            early = await self._begun(region, birth, vmid)
            if early is not None:
                return await self._dress(region, birth, early)
        if not vmid or region.inventory.find(vmid) is not None:
            await region.inventory.refresh()
            vmid = choose_vmid(self._within, region.inventory.guests, seed=birth.mark.key)
            await self._book.put(key, {"vmid": str(vmid)})
        await self._start(region, birth, vmid)
        made = await region.pve.qemu.config(birth.host, vmid)
        return await self._dress(region, birth, Carrier(vmid, birth.host, made))

    async def born(self, mark: Mark) -> None:
        """All that belongs to a birth is done."""
        await self._book.drop(f"birth:{mark.key}")

    async def is_pending(self, mark: Mark) -> bool:
        return bool(await self._book.get(f"birth:{mark.key}"))

    async def _start(self, region: Region, birth: Birth, vmid: int) -> None:
        try:
            upid = await birth.start(vmid)
            ended = await region.tasks.wait_ended(upid)
            if ended.error is not None:
                raise ended.error
        except errors.Exists as error:
            await region.inventory.refresh()
            raise UnderWay(f"guest {vmid} is there already: {error}") from error
        except (Unreachable, Busy):
            raise
        except errors.Forbidden as error:
            await self.born(birth.mark)
            raise errors.Forbidden(
                f"{error}; snapshots and clones need VM.Allocate, VM.Clone, VM.Snapshot, "
                "VM.Config.Disk and VM.Config.Options on /vms, and Datastore.AllocateSpace"
            ) from error
        except MoxwellError:
            await self.born(birth.mark)
            raise

    async def _begun(self, region: Region, birth: Birth, vmid: int) -> Carrier | None:
        """What became of an earlier try; raises while that is not yet known."""
        ids = {str(vmid), str(birth.parent)}
        for host, seen in region.inventory.hosts.items():
            for row in await active_tasks.running(region, host) if seen.online else ():
                if row.type in _BIRTHS and row.id in ids:
                    raise UnderWay(f"guest {vmid} is being made ({row.type})")
        found = await self.read(region, vmid)
        if found is None:
            return None
        lock = found.config.lock
        if ownership.is_ours(found.config, birth.mark) and not lock:
            return found
        if lock in ("clone", "create"):
            raise NotNow(f"guest {vmid} was left locked ({lock}) by Proxmox; unlock and remove it")
        return None

    async def _dress(self, region: Region, birth: Birth, made: Carrier) -> Carrier:
        """A clone has its parent's tags; give it its own."""
        wanted = birth.mark.tags((SHELL_TAG, birth.kind))
        if {*made.config.tags} != {*wanted.split(";")}:
            changes = {"tags": wanted}
            await region.pve.qemu.configure(
                made.host, made.vmid, changes, digest=made.config.digest
            )
            made = replace(made, config=GuestConfig({**made.config.raw, **changes}))
        region.inventory.learn(made.vmid, host=made.host, tags=tuple(wanted.split(";")))
        return made

    # ------------------------------------------------------------------ ending

    async def bury(self, region: Region, carrier: Carrier) -> None:
        """The carrier's volume was deleted; from now on it only serves its snapshots."""
        tags = (*carrier.config.tags, GONE_TAG)
        changes = {"tags": ";".join(dict.fromkeys(tags))}
        await region.pve.qemu.configure(
            carrier.host, carrier.vmid, changes, digest=carrier.config.digest
        )
        region.inventory.learn(carrier.vmid, host=carrier.host, tags=tags)

    async def remove(self, region: Region, carrier: Carrier) -> None:
        """Destroy the guest, and with it the disk that bears its id, if there is one."""
        try:
            if carrier.config.protected:
                await region.pve.qemu.configure(
                    carrier.host, carrier.vmid, {}, delete=("protection",)
                )
            ended = await region.tasks.wait_ended(
                await region.pve.qemu.delete(carrier.host, carrier.vmid, purge=True)
            )
            if ended.error is not None and not isinstance(ended.error, Missing):
                raise ended.error
        except errors.GuestMissing:
            pass
        region.inventory.learn_gone(carrier.vmid)


def guest_name(text: str) -> str:
    """A name as Proxmox takes it: letters, digits and dashes."""
    cleaned = "".join(c if c.isalnum() else "-" for c in text.lower())
    return cleaned[:60].strip("-")
