"""
Allocates, finds, clones, renames, resizes and frees volumes on the storages of a region.

Everything is immediate except :meth:`VolumeStore.copy`, which takes the time of the bandwidth.
Thick storages (lvm, zfspool) allocate the full size, others what was written. Errors have the
messages of the tools that PVE calls.
"""

import hashlib
import re

from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.guest import DiskWriter
from moxwell.lab.proxmox.request_context import RegionRuntime
from moxwell.lab.proxmox.state import FileData, SimStorage, SimVolume
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes import names
from moxwell.lab.proxmox.volumes.bandwidth import human_size, transfer
from moxwell.lab.proxmox.volumes.volume_index import VolumeIndex, volume_index

CLOUDINIT_SIZE = 4 << 20
_EXTENT = 4 << 20


def blank_used(storage: SimStorage, form: str, size: int) -> int:
    """The allocated bytes of a new, empty image."""
    if storage.type == "lvm" or (storage.type == "zfspool" and not storage.options.get("sparse")):
        return size
    if form == "qcow2":
        return min(size, 200704 + (size >> 13))
    return min(size, 4096) if names.has_path(storage) else 0


class VolumeStore:
    """All volumes that one node sees."""

    def __init__(self, runtime: RegionRuntime, node: str) -> None:
        self._runtime, self.node = runtime, node

    # ------------------------------------------------------------------ find

    def get_storage(self, name: str) -> SimStorage:
        storage = self._runtime.region.storages.get(name)
        if storage is None:
            raise die(f"storage '{name}' does not exist")
        return storage

    def get_enabled(self, name: str, node: str | None = None) -> SimStorage:
        """A storage that is enabled on a node."""
        storage = self.get_storage(name)
        if storage.options.get("disable"):
            raise die(f"storage '{name}' is disabled")
        if not storage.is_available_on(node or self.node):
            raise die(f"storage '{name}' is not available on node '{node or self.node}'")
        return storage

    def find(self, volid: str) -> SimVolume | None:
        name, _, rest = volid.partition(":")
        storage = self._runtime.region.storages.get(name)
        return storage.volumes_on(self.node).get(rest) if storage is not None else None

    def _index(self, storage: SimStorage) -> VolumeIndex:
        return volume_index(self._runtime.module_data, storage, self.node)

    def _full(self, storage: SimStorage, needed: int) -> bool:
        return storage.used_extra + self._index(storage).used + needed > storage.capacity

    def get(self, volid: str) -> SimVolume:
        volume = self.find(volid)
        if volume is None:
            raise die(f"volume '{volid}' does not exist")
        return volume

    def content_id(self, volid: str) -> str:
        """The content id of a volume; guests that write to their disks know the current one."""
        volume, guests = self.get(volid), self._runtime.guest_os
        if isinstance(guests, DiskWriter):
            storage = self.get_storage(volid.partition(":")[0])
            node = "" if storage.shared else self.node
            volume.content_id = guests.content_id(storage.name, node, volume)
        return volume.content_id

    def parse(self, volid: str) -> names.VolumeName:
        name, rest = names.split_volid(volid)
        return names.parse_name(self.get_storage(name), rest)

    def path(self, volid: str) -> str:
        name, rest = names.split_volid(volid)
        return names.path_of(self.get_storage(name), rest)

    def owner(self, volid: str) -> int | None:
        return self.parse(volid).vmid

    def feature(self, feature: str, volid: str, snapshot: str | None = None) -> bool:
        name, rest = names.split_volid(volid)
        return names.has_feature(self.get_storage(name), feature, rest, snapshot)

    def base_in_use(self, volid: str) -> bool:
        """Whether a linked clone uses this base image."""
        name, rest = names.split_volid(volid)
        storage = self.get_storage(name)
        parsed = names.parse_name(storage, rest)
        if not parsed.is_base:
            return False
        front = f"{parsed.vmid}/{parsed.file}/" if names.has_path(storage) else f"{parsed.file}/"
        return any(other.startswith(front) for other in storage.volumes_on(self.node))

    # ------------------------------------------------------------------ allocate

    def alloc(
        self, storage_name: str, vmid: int, form: str | None, size: int, file: str | None = None
    ) -> str:
        """Allocate an image; returns its volume id."""
        storage = self.get_enabled(storage_name)
        form = form or names.default_format(storage)
        if names.has_path(storage):
            file = self._file_name(storage, vmid, form, file)
        else:
            file = self._block_name(storage, vmid, form, file)
        size = self._rounded(storage, size)
        name = names.join_name(storage, vmid, file)
        used = blank_used(storage, form, size)
        self.check_room(storage, used, names.path_of(storage, name), form)
        self._put(storage, SimVolume(name, form, "images", size, used, vmid))
        return f"{storage_name}:{name}"

    def _file_name(self, storage: SimStorage, vmid: int, form: str, file: str | None) -> str:
        file = file or self._next(storage, vmid, form)
        found, _ = names.parse_file(file)
        if found != form:
            raise die(f"illegal name '{file}' - wrong extension for format ('{found} != '{form}')")
        path = names.path_of(storage, names.join_name(storage, vmid, file))
        if any(names.path_of(storage, other) == path for other in self._own(storage, vmid)):
            raise die(f"disk image '{path}' already exists")
        return file

    def _block_name(self, storage: SimStorage, vmid: int, form: str, file: str | None) -> str:
        chained = storage.type == "lvm" and names.has_volume_chain(storage)
        allowed = {"raw"} | ({"subvol"} if storage.type == "zfspool" else set())
        if form not in (allowed | {"qcow2"} if chained else allowed):
            raise die(f"unsupported format '{form}'")
        if storage.type == "drbd":
            return self._linstor_name(storage, vmid, file)
        lead = "subvol" if form == "subvol" else "vm"
        if file and not file.startswith(f"{lead}-{vmid}-"):
            raise die(f"illegal name '{file}' - should be '{lead}-{vmid}-*'")
        file = file or self._next(storage, vmid, form)
        if any(other.rpartition("/")[2] == file for other in self._own(storage, vmid)):
            raise self._exists(storage, file)
        return file

    def _linstor_name(self, storage: SimStorage, vmid: int, file: str | None) -> str:
        if not file:
            return f"pm-{self._runtime.random.getrandbits(32):08x}_{vmid}"
        if not names.LINSTOR_NAME.fullmatch(file):
            text = "has to be a valid UUID, legacy, state, or cloud-init name"
            raise die(f"allocated name ('{file}') {text} at LINSTORPlugin.pm line 523.")
        if file in storage.volumes_on(self.node):
            raise die(f"volume '{file}' already exists")
        return file

    def _exists(self, storage: SimStorage, file: str) -> PveException:
        path = names.path_of(storage, file)
        if storage.type == "zfspool":
            target = path.removeprefix("/dev/zvol/")
            return die(f"zfs error: cannot create '{target}': dataset already exists")
        if storage.type == "rbd":
            return die(f"rbd create '{file}' error: rbd: create error: (17) File exists")
        group = storage.options.get("vgname", storage.name)
        return die(
            f"lvcreate '{group}/{file}' error:   Logical Volume \"{file}\" already exists"
            f' in volume group "{group}"'
        )

    def _own(self, storage: SimStorage, vmid: int) -> list[str]:
        return list(self._index(storage).owned(vmid))

    def _next(self, storage: SimStorage, vmid: int, form: str) -> str:
        """The first free ``vm-ID-disk-N`` of a guest on this storage."""
        taken = {
            name.rpartition("/")[2].partition(".")[0].split("-", 1)[1]
            for name in self._own(storage, vmid)
            if "-disk-" in name.rpartition("/")[2]
        }
        lead = "subvol" if form == "subvol" else "vm"
        tail = f".{form}" if names.has_path(storage) or form == "qcow2" else ""
        for number in range(256):
            if f"{vmid}-disk-{number}" not in taken:
                return f"{lead}-{vmid}-disk-{number}{tail}"
        raise die(f"unable to allocate an image name for VM {vmid} in storage '{storage.name}'")

    def _rounded(self, storage: SimStorage, size: int) -> int:
        if storage.type in ("lvm", "lvmthin") and size % _EXTENT:
            return size + _EXTENT - size % _EXTENT
        if storage.type == "drbd":
            return max(size, 3 << 20)
        return size

    def _put(self, storage: SimStorage, volume: SimVolume) -> None:
        volume.ctime = int(self._runtime.now())
        volume.content_id = (
            volume.content_id
            or hashlib.sha1(
                f"{storage.name}:{volume.name}:{self._runtime.region.next_number()}".encode()
            ).hexdigest()[:12]
        )
        self._index(storage).put(volume)

    def alloc_copy(self, storage_name: str, vmid: int, volume: SimVolume) -> str:
        """Allocate a volume for a copy from another node, with the same name if it is free."""
        storage = self.get_enabled(storage_name)
        file = volume.name.rpartition("/")[2]
        wanted = file.rpartition(".")[0] or file
        form = volume.format if names.has_path(storage) else "raw"
        if names.has_path(storage):
            wanted = f"{wanted}.{form}"
        if names.join_name(storage, vmid, wanted) in storage.volumes_on(self.node):
            return self.alloc(storage_name, vmid, form, volume.size)
        return self.alloc(storage_name, vmid, form, volume.size, wanted)

    def put_file(self, storage_name: str, name: str, content: str, form: str, data: bytes) -> str:
        """Store an uploaded or downloaded file."""
        storage = self.get_enabled(storage_name)
        index = self._index(storage)
        old = index.remove(name) if name in index.volumes else None
        self.check_room(storage, len(data), names.path_of(storage, name), "file")
        content_id = hashlib.sha1(data).hexdigest()[:12]
        volume = SimVolume(
            name, form, content, len(data), len(data), data=FileData(data), content_id=content_id
        )
        if old is not None:
            volume.notes = old.notes
        self._put(storage, volume)
        return f"{storage_name}:{name}"

    def check_room(self, storage: SimStorage, needed: int, path: str, form: str) -> None:
        """Raise the error of the tool that finds no room."""
        if not self._full(storage, needed):
            return
        if storage.type in ("lvm", "lvmthin"):
            group = storage.options.get("vgname", storage.name)
            free = max(storage.capacity - storage.used(self.node), 0) // _EXTENT
            name = path.rpartition("/")[2]
            raise die(
                f"lvcreate '{group}/{name}' error:   Volume group \"{group}\" has insufficient"
                f" free space ({free} extents): {-(-needed // _EXTENT)} required."
            )
        if storage.type == "zfspool":
            target = path.removeprefix("/dev/zvol/")
            raise die(f"zfs error: cannot create '{target}': out of space")
        if form == "file":
            raise die("import failed: command 'cp' failed: No space left on device")
        raise die(f"unable to create image: qemu-img: {path}: No space left on device")

    # ------------------------------------------------------------------ change

    def clone(
        self, volid: str, vmid: int, log: WorkerContext | None = None, snapshot: str | None = None
    ) -> str:
        """Create a linked clone of a base image (or of a snapshot, if the storage supports it)."""
        storage_name, rest = names.split_volid(volid)
        storage, source = self.get_storage(storage_name), self.get(volid)
        base = names.parse_name(storage, rest)
        form = "qcow2" if names.has_path(storage) else source.format
        file = self._next(storage, vmid, form)
        if log is not None and names.has_path(storage):
            log.log(
                f"clone {rest}: images, {file}, {vmid} to {file} (base=../{base.vmid}/{base.file})"
            )
        name = names.join_name(storage, vmid, file, None if snapshot else base)
        used = 200704 if form == "qcow2" else 0
        self.check_room(storage, used, names.path_of(storage, name), form)
        parent = f"{rest}@{snapshot}" if snapshot else rest
        new = SimVolume(
            name,
            form,
            "images",
            source.size,
            used,
            vmid,
            parent=parent,
            content_id=source.content_id if snapshot else self.content_id(volid),
        )
        self._put(storage, new)
        return f"{storage_name}:{name}"

    async def copy(self, ctx: WorkerContext, source: str, target: str, limit_kib: int = 0) -> None:
        """Copy the content of a volume; takes the time of the bandwidth."""
        old, new = self.get(source), self.get(target)
        storage = self.get_storage(target.partition(":")[0])
        total = human_size(old.size)
        ctx.log(f"transferred 0.0 B of {total} (0.00%)")
        storages = frozenset({source.partition(":")[0], storage.name})
        await transfer(self._runtime, ctx, storages, old.size, self._rate(limit_kib))
        needed = max(min(old.used, new.size) - new.used, 0)
        if self._full(storage, needed):
            ctx.log("qemu-img: error while writing at byte 0: No space left on device")
            raise die(
                "copy failed: command '/usr/bin/qemu-img convert -p -n"
                f" {self.path(source)} {self.path(target)}' failed: exit code 1"
            )
        ctx.log(f"transferred {total} of {total} (100.00%)")
        self._index(storage).grow(new, needed)
        new.content_id, new.data = self.content_id(source), old.data

    def _rate(self, limit_kib: int) -> float:
        rate = self._runtime.region.pace.bandwidth
        return min(rate, limit_kib * 1024.0) if limit_kib else rate

    def make_base(self, volid: str) -> str:
        """Convert an image to a base image by renaming it."""
        storage_name, rest = names.split_volid(volid)
        storage = self.get_storage(storage_name)
        parsed = names.parse_name(storage, rest)
        file = "base" + parsed.file.removeprefix("vm").removeprefix("subvol")
        if parsed.format == "subvol" and storage.type == "zfspool":
            file = "basevol" + parsed.file.removeprefix("subvol")
        name = names.join_name(storage, parsed.vmid or 0, file, names.base_of(parsed))
        return self._renamed(storage, rest, name, parsed.vmid)

    def rename(self, volid: str, vmid: int) -> str:
        """Reassign an image to another guest, with the next free name."""
        storage_name, rest = names.split_volid(volid)
        storage, volume = self.get_storage(storage_name), self.get(volid)
        parsed = names.parse_name(storage, rest)
        file = self._next(storage, vmid, volume.format)
        if storage.type == "drbd":
            file = re.sub(r"_\d+$", f"_{vmid}", rest)
            if not rest.startswith("pm-"):
                raise die("rename_volume only possible for uuid disk names")
        name = names.join_name(storage, vmid, file, names.base_of(parsed))
        return self._renamed(storage, rest, name, vmid)

    def _renamed(self, storage: SimStorage, old: str, new: str, vmid: int | None) -> str:
        index = self._index(storage)
        self.content_id(f"{storage.name}:{old}")
        volume = index.remove(old)
        volume.name, volume.vmid = new, vmid
        index.put(volume)
        return f"{storage.name}:{new}"

    def set_used(self, volid: str, used: int) -> None:
        """Set the allocated bytes of a volume."""
        volume = self.get(volid)
        storage = self.get_storage(volid.partition(":")[0])
        self._index(storage).grow(volume, used - volume.used)

    def resize(self, volid: str, size: int) -> None:
        storage_name, rest = names.split_volid(volid)
        storage, volume = self.get_storage(storage_name), self.get(volid)
        grown = blank_used(storage, volume.format, size) - blank_used(
            storage, volume.format, volume.size
        )
        self.check_room(storage, max(grown, 0), names.path_of(storage, rest), volume.format)
        volume.size = size
        self._index(storage).grow(volume, max(grown, 0))

    def free(self, volid: str, log: WorkerContext | None = None) -> None:
        """Free a volume; on file storages a missing one is only logged."""
        storage_name, rest = names.split_volid(volid)
        storage = self.get_storage(storage_name)
        names.parse_name(storage, rest)
        if self.base_in_use(volid):
            raise die(f"base volume '{rest}' is still in use by linked clones")
        for snapshot in self.get(volid).snapshots if self.find(volid) else ():
            self.release(volid, snapshot)
        volume = storage.volumes_on(self.node).get(rest)
        if volume is None:
            if not names.has_path(storage):
                raise self._gone(storage, rest)
            if log is not None:
                log.log(f"disk image '{names.path_of(storage, rest)}' does not exist")
            return
        if volume.protected:
            raise die(f"cannot remove protected volume '{rest}' on '{storage_name}'")
        self._index(storage).remove(rest)

    def release(self, volid: str, snapshot: str) -> None:
        """Check that no clone depends on a snapshot (Ceph RBD only)."""
        name, rest = names.split_volid(volid)
        storage = self.get_storage(name)
        has_clones = any(
            v.parent == f"{rest}@{snapshot}" for v in storage.volumes_on(self.node).values()
        )
        if storage.type == "rbd" and has_clones:
            raise die(
                f"rbd unprotect {rest} snap '{snapshot}' error: rbd: unprotecting snap failed: "
                "(16) Device or resource busy"
            )

    def _gone(self, storage: SimStorage, name: str) -> PveException:
        path = names.path_of(storage, name)
        if storage.type == "zfspool":
            target = path.removeprefix("/dev/zvol/")
            return die(f"zfs error: could not find any snapshots to destroy: {target}")
        if storage.type == "rbd":
            return die(f"rbd error: rbd: delete error: (2) No such file or directory: {name}")
        group = storage.options.get("vgname", storage.name)
        return die(f"lvremove '{group}/{name}' error:   Failed to find logical volume")
