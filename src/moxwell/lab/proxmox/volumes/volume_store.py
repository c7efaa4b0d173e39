"""
The shelves of a region's storages: volumes are made, found, cloned, renamed, grown and freed here.

Everything is immediate but :meth:`Stock.copy`, which takes the bytes' time. Capacity is counted:
thick storages (lvm, zfspool) occupy the whole size at once, the others what was written. Refusals
carry the texts of the tools that PVE calls.
"""

import hashlib
import re

from moxwell.lab.proxmox.errors import PveError, die
from moxwell.lab.proxmox.request_context import Desk
from moxwell.lab.proxmox.state import Storage, Volume
from moxwell.lab.proxmox.tasks import Work
from moxwell.lab.proxmox.volumes import names
from moxwell.lab.proxmox.volumes.volume_index import Shelf, shelf

CLOUDINIT_SIZE = 4 << 20
_EXTENT = 4 << 20


def blank_used(storage: Storage, form: str, size: int) -> int:
    """What a new, empty image occupies."""
    if storage.type == "lvm" or (storage.type == "zfspool" and not storage.options.get("sparse")):
        return size
    if form == "qcow2":
        return min(size, 200704 + (size >> 13))
    return min(size, 4096) if names.has_path(storage) else 0


class Stock:
    """All volumes, as one node sees them."""

    def __init__(self, desk: Desk, node: str) -> None:
        self._desk, self.node = desk, node

    # ------------------------------------------------------------------ finding

    def get_storage(self, name: str) -> Storage:
        storage = self._desk.region.storages.get(name)
        if storage is None:
            raise die(f"storage '{name}' does not exist")
        return storage

    def enabled(self, name: str, node: str | None = None) -> Storage:
        """A storage that can be used on a node."""
        storage = self.get_storage(name)
        if storage.options.get("disable"):
            raise die(f"storage '{name}' is disabled")
        if not storage.on(node or self.node):
            raise die(f"storage '{name}' is not available on node '{node or self.node}'")
        return storage

    def find(self, volid: str) -> Volume | None:
        name, _, rest = volid.partition(":")
        storage = self._desk.region.storages.get(name)
        return storage.shelf(self.node).get(rest) if storage is not None else None

    def _shelf(self, storage: Storage) -> Shelf:
        return shelf(self._desk.extras, storage, self.node)

    def _full(self, storage: Storage, needed: int) -> bool:
        return storage.used_extra + self._shelf(storage).used + needed > storage.capacity

    def get(self, volid: str) -> Volume:
        volume = self.find(volid)
        if volume is None:
            raise die(f"volume '{volid}' does not exist")
        return volume

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
        """Is this a base that a linked clone names?"""
        name, rest = names.split_volid(volid)
        storage = self.get_storage(name)
        parsed = names.parse_name(storage, rest)
        if not parsed.is_base:
            return False
        front = f"{parsed.vmid}/{parsed.file}/" if names.has_path(storage) else f"{parsed.file}/"
        return any(other.startswith(front) for other in storage.shelf(self.node))

    # ------------------------------------------------------------------ making

    def alloc(
        self, storage_name: str, vmid: int, form: str | None, size: int, file: str | None = None
    ) -> str:
        """A new image; its volume id."""
        storage = self.enabled(storage_name)
        form = form or names.default_format(storage)
        if names.has_path(storage):
            file = self._file_name(storage, vmid, form, file)
        else:
            file = self._block_name(storage, vmid, form, file)
        size = self._rounded(storage, size)
        name = names.join_name(storage, vmid, file)
        used = blank_used(storage, form, size)
        self._room(storage, used, names.path_of(storage, name), form)
        self._put(storage, Volume(name, form, "images", size, used, vmid))
        return f"{storage_name}:{name}"

    def _file_name(self, storage: Storage, vmid: int, form: str, file: str | None) -> str:
        file = file or self._next(storage, vmid, form)
        found, _ = names.parse_file(file)
        if found != form:
            raise die(f"illegal name '{file}' - wrong extension for format ('{found} != '{form}')")
        path = names.path_of(storage, names.join_name(storage, vmid, file))
        if any(names.path_of(storage, other) == path for other in self._own(storage, vmid)):
            raise die(f"disk image '{path}' already exists")
        return file

    def _block_name(self, storage: Storage, vmid: int, form: str, file: str | None) -> str:
        if form not in ("raw", "subvol") or (form == "subvol" and storage.type != "zfspool"):
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

    def _linstor_name(self, storage: Storage, vmid: int, file: str | None) -> str:
        if not file:
            return f"pm-{self._desk.random.getrandbits(32):08x}_{vmid}"
        if not names.LINSTOR_NAME.fullmatch(file):
            text = "has to be a valid UUID, legacy, state, or cloud-init name"
            raise die(f"allocated name ('{file}') {text} at LINSTORPlugin.pm line 523.")
        if file in storage.shelf(self.node):
            raise die(f"volume '{file}' already exists")
        return file

    def _exists(self, storage: Storage, file: str) -> PveError:
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

    def _own(self, storage: Storage, vmid: int) -> list[str]:
        return list(self._shelf(storage).owned(vmid))

    def _next(self, storage: Storage, vmid: int, form: str) -> str:
        """The lowest free ``vm-ID-disk-N`` of a guest on this storage."""
        taken = {
            name.rpartition("/")[2].partition(".")[0].split("-", 1)[1]
            for name in self._own(storage, vmid)
            if "-disk-" in name.rpartition("/")[2]
        }
        lead = "subvol" if form == "subvol" else "vm"
        tail = f".{form}" if names.has_path(storage) else ""
        for number in range(256):
            if f"{vmid}-disk-{number}" not in taken:
                return f"{lead}-{vmid}-disk-{number}{tail}"
        raise die(f"unable to allocate an image name for VM {vmid} in storage '{storage.name}'")

    def _rounded(self, storage: Storage, size: int) -> int:
        if storage.type in ("lvm", "lvmthin") and size % _EXTENT:
            return size + _EXTENT - size % _EXTENT
        if storage.type == "drbd":
            return max(size, 3 << 20)
        return size

    def _put(self, storage: Storage, volume: Volume) -> None:
        volume.ctime = int(self._desk.now())
        volume.mark = (
            volume.mark
            or hashlib.sha1(
                f"{storage.name}:{volume.name}:{self._desk.region.next_number()}".encode()
            ).hexdigest()[:12]
        )
        self._shelf(storage).put(volume)

    def adopt(self, storage_name: str, vmid: int, volume: Volume) -> str:
        """A volume to take another node's copy: under the same name where that is free."""
        storage = self.enabled(storage_name)
        file = volume.name.rpartition("/")[2]
        wanted = file.rpartition(".")[0] or file
        form = volume.format if names.has_path(storage) else "raw"
        if names.has_path(storage):
            wanted = f"{wanted}.{form}"
        if names.join_name(storage, vmid, wanted) in storage.shelf(self.node):
            return self.alloc(storage_name, vmid, form, volume.size)
        return self.alloc(storage_name, vmid, form, volume.size, wanted)

    def put_file(self, storage_name: str, name: str, content: str, form: str, data: bytes) -> str:
        """An uploaded or downloaded file, with its bytes."""
        storage = self.enabled(storage_name)
        here = self._shelf(storage)
        old = here.take(name) if name in here.volumes else None
        self._room(storage, len(data), names.path_of(storage, name), "file")
        mark = hashlib.sha1(data).hexdigest()[:12]
        volume = Volume(name, form, content, len(data), len(data), data=data, mark=mark)
        if old is not None:
            volume.notes = old.notes
        self._put(storage, volume)
        return f"{storage_name}:{name}"

    def _room(self, storage: Storage, needed: int, path: str, form: str) -> None:
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

    # ------------------------------------------------------------------ changing

    def clone(
        self, volid: str, vmid: int, log: Work | None = None, snapshot: str | None = None
    ) -> str:
        """A linked clone of a base volume (or, where the storage can, of a snapshot)."""
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
        self._room(storage, used, names.path_of(storage, name), form)
        parent = f"{rest}@{snapshot}" if snapshot else rest
        new = Volume(name, form, "images", source.size, used, vmid, parent=parent, mark=source.mark)
        self._put(storage, new)
        return f"{storage_name}:{name}"

    async def copy(self, work: Work, source: str, target: str, limit_kib: int = 0) -> None:
        """Fill a new volume with another one's bytes, in the time that takes."""
        old, new = self.get(source), self.get(target)
        storage = self.get_storage(target.partition(":")[0])
        total = _human(old.size)
        work.log(f"transferred 0.0 B of {total} (0.00%)")
        await work.sleep(old.size / self._rate(limit_kib))
        needed = max(min(old.used, new.size) - new.used, 0)
        if self._full(storage, needed):
            work.log("qemu-img: error while writing at byte 0: No space left on device")
            raise die(
                "copy failed: command '/usr/bin/qemu-img convert -p -n"
                f" {self.path(source)} {self.path(target)}' failed: exit code 1"
            )
        work.log(f"transferred {total} of {total} (100.00%)")
        self._shelf(storage).grow(new, needed)
        new.mark, new.data = old.mark, old.data

    def _rate(self, limit_kib: int) -> float:
        rate = self._desk.region.pace.bandwidth
        return min(rate, limit_kib * 1024.0) if limit_kib else rate

    def make_base(self, volid: str) -> str:
        """Turn an image into a base image: only its name changes."""
        storage_name, rest = names.split_volid(volid)
        storage = self.get_storage(storage_name)
        parsed = names.parse_name(storage, rest)
        file = "base" + parsed.file.removeprefix("vm").removeprefix("subvol")
        if parsed.format == "subvol" and storage.type == "zfspool":
            file = "basevol" + parsed.file.removeprefix("subvol")
        name = names.join_name(storage, parsed.vmid or 0, file)
        return self._renamed(storage, rest, name, parsed.vmid)

    def rename(self, volid: str, vmid: int) -> str:
        """Give an image to another guest, under the next free name."""
        storage_name, rest = names.split_volid(volid)
        storage, volume = self.get_storage(storage_name), self.get(volid)
        parsed = names.parse_name(storage, rest)
        file = self._next(storage, vmid, volume.format)
        if storage.type == "drbd":
            file = re.sub(r"_\d+$", f"_{vmid}", rest)
            if not rest.startswith("pm-"):
                raise die("rename_volume only possible for uuid disk names")
        base = None
        if parsed.base is not None:
            base = names.VolumeName("images", parsed.base, parsed.base_vmid)
        return self._renamed(storage, rest, names.join_name(storage, vmid, file, base), vmid)

    def _renamed(self, storage: Storage, old: str, new: str, vmid: int | None) -> str:
        here = self._shelf(storage)
        volume = here.take(old)
        volume.name, volume.vmid = new, vmid
        here.put(volume)
        return f"{storage.name}:{new}"

    def occupy(self, volid: str, used: int) -> None:
        """Say how much a volume occupies."""
        volume = self.get(volid)
        storage = self.get_storage(volid.partition(":")[0])
        self._shelf(storage).grow(volume, used - volume.used)

    def resize(self, volid: str, size: int) -> None:
        storage_name, rest = names.split_volid(volid)
        storage, volume = self.get_storage(storage_name), self.get(volid)
        grown = blank_used(storage, volume.format, size) - blank_used(
            storage, volume.format, volume.size
        )
        self._room(storage, max(grown, 0), names.path_of(storage, rest), volume.format)
        volume.size = size
        self._shelf(storage).grow(volume, max(grown, 0))

    def free(self, volid: str, log: Work | None = None) -> None:
        """Remove a volume; on file storages a missing one is only a remark."""
        storage_name, rest = names.split_volid(volid)
        storage = self.get_storage(storage_name)
        names.parse_name(storage, rest)
        if self.base_in_use(volid):
            raise die(f"base volume '{rest}' is still in use by linked clones")
        for snapshot in self.get(volid).snapshots if self.find(volid) else ():
            self.release(volid, snapshot)
        volume = storage.shelf(self.node).get(rest)
        if volume is None:
            if not names.has_path(storage):
                raise self._gone(storage, rest)
            if log is not None:
                log.log(f"disk image '{names.path_of(storage, rest)}' does not exist")
            return
        if volume.protected:
            raise die(f"cannot remove protected volume '{rest}' on '{storage_name}'")
        self._shelf(storage).take(rest)

    def release(self, volid: str, snapshot: str) -> None:
        """Ceph keeps a snapshot as long as a clone hangs on it; thin LVs do not depend."""
        name, rest = names.split_volid(volid)
        storage = self.get_storage(name)
        hung = any(v.parent == f"{rest}@{snapshot}" for v in storage.shelf(self.node).values())
        if storage.type == "rbd" and hung:
            raise die(
                f"rbd unprotect {rest} snap '{snapshot}' error: rbd: unprotecting snap failed: "
                "(16) Device or resource busy"
            )

    def _gone(self, storage: Storage, name: str) -> PveError:
        path = names.path_of(storage, name)
        if storage.type == "zfspool":
            target = path.removeprefix("/dev/zvol/")
            return die(f"zfs error: could not find any snapshots to destroy: {target}")
        if storage.type == "rbd":
            return die(f"rbd error: rbd: delete error: (2) No such file or directory: {name}")
        group = storage.options.get("vgname", storage.name)
        return die(f"lvremove '{group}/{name}' error:   Failed to find logical volume")


def _human(size: int) -> str:
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
