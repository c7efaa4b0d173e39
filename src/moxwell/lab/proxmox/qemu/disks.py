"""
Allocates the volumes of drives: new disks, imports, cloud-init drives, existing volumes, clones.

``check_params`` runs before the task; ``DriveBuilder.create`` runs with the guest's lock held and
frees the allocated volumes if a later drive fails.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moxwell.lab.proxmox.config_schema.drives import (
    Drive,
    has_compatible_options,
    is_drive,
    parse_drive,
    write_drive,
)
from moxwell.lab.proxmox.errors import bad_params, die, param_error
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf, SimSnapshot, SimVolume, Value
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes import access, names
from moxwell.lab.proxmox.volumes.volume_store import CLOUDINIT_SIZE, VolumeStore

TPM_SIZE = 4 << 20
EFI_SIZE = 528 << 10
EFI_SMALL = 128 << 10
_IMPORT = "'import-from' requires special syntax - use <storage ID>:0,import-from=<source>"


def check_params(
    call: PveCall, settings: dict[str, Value], *, replicated: int | None = None
) -> None:
    """Reject invalid drive strings and normalize the others; ``replicated`` names the guest."""
    for slot in sorted(k for k in settings if is_drive(k)):
        drive = parse_drive(slot, str(settings[slot]), major=9)
        if not has_compatible_options(drive):
            raise param_error({slot: "unable to parse drive options"})
        if "import-from" in drive.options:
            wanted = drive.wanted
            if wanted is None or wanted[1] != 0:
                raise param_error({slot: _IMPORT})
            _check_special(drive)
        drive = _normalize(call, drive)
        _check_iso(call, drive)
        if replicated is not None:
            _check_replicable(call, replicated, drive)
        settings[slot] = write_drive(drive)


def _normalize(call: PveCall, drive: Drive) -> Drive:
    """Convert paths to volume ids where a storage has them; ``none`` is a CD-ROM drive."""
    options = dict(drive.options)
    if drive.file.startswith("/") and not drive.file.startswith("/dev/"):
        found = _volume_at(call, drive.file)
        if found is None:
            text = f"unable to associate path '{drive.file}' to any storage"
            raise param_error({drive.slot: text})
        if ":iso/" in found:
            options.setdefault("media", "cdrom")
        return Drive(drive.slot, found, options)
    if drive.file in ("cdrom", "none"):
        options.setdefault("media", "cdrom")
    return Drive(drive.slot, drive.file, options)


def _volume_at(call: PveCall, path: str) -> str | None:
    for storage in call.region.storages.values():
        if not names.has_path(storage) or not storage.is_available_on(call.node):
            continue
        for volume in storage.volumes_on(call.node).values():
            if names.path_of(storage, volume.name) == path:
                return f"{storage.name}:{volume.name}"
    return None


def as_cdrom(text: str) -> str:
    """The ide2 drive of the deprecated parameter ``cdrom``."""
    return text if "media=" in text else f"{text},media=cdrom"


def _check_special(drive: Drive) -> None:
    needed = {"efidisk0": ("efitype", "pre-enrolled-keys"), "tpmstate0": ("version",)}
    for key in needed.get(drive.slot, ()):
        if key not in drive.options:
            text = f"need to specify '{key}' when using 'import-from'"
            raise param_error({drive.slot: text})


def _check_iso(call: PveCall, drive: Drive) -> None:
    if drive.storage is None or drive.wanted is not None or drive.file.endswith(":cloudinit"):
        return
    kind = files.volume_store(call).parse(drive.file).kind
    if kind == "iso" and drive.options.get("media") != "cdrom":
        raise param_error({drive.slot: "explicit 'media=cdrom' is required for iso images"})


def _check_replicable(call: PveCall, vmid: int, drive: Drive) -> None:
    """A guest with a replication job accepts only volumes that can be replicated."""
    jobs = [j for j in call.region.replication.values() if str(j.get("guest")) == str(vmid)]
    if not jobs or drive.options.get("replicate") == "0" or drive.is_cdrom_media:
        return
    if drive.storage is None and drive.wanted is None:
        raise die("cannot add non-managed/pass-through volume to a replicated VM")
    if drive.file.endswith(":cloudinit"):
        return
    storage = files.volume_store(call).get_storage(drive.storage or "")
    if storage.type != "zfspool" and not storage.shared:
        raise die("cannot add non-replicatable volume to a replicated VM")


@dataclass(frozen=True, slots=True)
class VolumeTarget:
    """The guest that gets the volumes, and its configurations."""

    vmid: int
    confs: tuple[Conf, ...] = ()  # configurations that may contain a cloud-init drive
    template: bool = False


class DriveBuilder:
    """Allocates the volumes of one request, and can free them again."""

    def __init__(self, call: PveCall, ctx: WorkerContext | None, target: VolumeTarget) -> None:
        self._call, self._work, self._target = call, ctx, target
        self._store = files.volume_store(call)
        self.made: list[str] = []
        self.result: dict[str, str] = {}

    async def create(
        self, settings: Mapping[str, Value], default: str | None = None
    ) -> dict[str, str]:
        """Allocate; returns slot -> drive string. Frees everything on failure."""
        done = False
        try:
            for slot in sorted(k for k in settings if is_drive(k)):
                drive = parse_drive(slot, str(settings[slot]), major=9)
                self.result[slot] = write_drive(await self._one(drive, default))
            done = True
        finally:
            if not done:
                self.undo()
        return self.result

    def undo(self) -> None:
        for volid in self.made:
            if self._store.find(volid) is not None:
                self._store.free(volid)
        self.made.clear()

    def _log(self, text: str) -> None:
        if self._work is not None:
            self._work.log(text)

    async def _one(self, drive: Drive, default: str | None) -> Drive:
        if drive.file in ("none", "cdrom"):
            return drive.without("size")
        if drive.file.endswith(":cloudinit") or drive.file == "cloudinit":
            return self._cloudinit(drive, default)
        if drive.wanted is not None:
            return await self._new(drive, default)
        return self._existing(drive)

    def _refuse_second(self, drive: Drive) -> None:
        confs: Iterable[Conf] = (*self._target.confs, dict(self.result))
        other = files.find_cloudinit(confs, drive.slot)
        if other is not None:
            raise die(f"{drive.slot} - cloud-init drive is already attached at '{other.slot}'")

    def _cloudinit(self, drive: Drive, default: str | None) -> Drive:
        name = drive.storage or default
        if not name:
            raise die("no storage ID specified (and no default storage)")
        self._refuse_second(drive)
        storage = self._store.get_storage(name)
        form = drive.options.get("format") or ("qcow2" if names.has_path(storage) else "raw")
        file = f"vm-{self._target.vmid}-cloudinit"
        if names.has_path(storage):
            file += f".{form}"
        volid = self._store.alloc(name, self._target.vmid, form, CLOUDINIT_SIZE, file)
        self.made.append(volid)
        made = drive.with_file(volid).without("size")
        made.options["media"] = "cdrom"
        self._log(f"{drive.slot}: successfully created disk '{write_drive(made)}'")
        return made

    async def _new(self, drive: Drive, default: str | None) -> Drive:
        wanted = drive.wanted or (None, 0.0)
        name = wanted[0] or default
        if not name:
            raise die("no storage ID specified (and no default storage)")
        source = drive.options.get("import-from")
        if source is not None:
            volid = await self._import(drive, name, source)
        else:
            size, form = self._blank(drive, name, wanted[1])
            volid = self._store.alloc(name, self._target.vmid, form, size)
            self.made.append(volid)
        if self._target.template and self._store.feature("template", volid):
            self.made.remove(volid)
            volid = self._store.make_base(volid)
            self.made.append(volid)
        made = drive.with_file(volid, self._store.get(volid).size)
        self._log(f"{drive.slot}: successfully created disk '{write_drive(made)}'")
        return made

    def _blank(self, drive: Drive, name: str, gib: float) -> tuple[int, str]:
        form = drive.options.get("format") or names.default_format(self._store.get_storage(name))
        if drive.slot == "efidisk0":
            return efi_size(drive), form
        if drive.slot == "tpmstate0":
            return TPM_SIZE, "raw"
        return int(gib * (1 << 20)) << 10, form

    async def _import(self, drive: Drive, name: str, source: str) -> str:
        volume, path = self._source(source)
        found = names.default_format(self._store.get_storage(name))
        if path is None:
            found = target_format(self._store, name, volume.format)
        form = drive.options.get("format") or found
        self._log(f"create full clone of drive ({source})")
        volid = self._store.alloc(name, self._target.vmid, form, volume.size)
        self.made.append(volid)
        if self._work is not None and path is None:
            await self._store.copy(self._work, source, volid)
        elif self._work is not None:
            await self._work.sleep(volume.size / self._call.region.pace.bandwidth)
        else:
            await self._call.sleep(volume.size / self._call.region.pace.bandwidth)
        copied = self._store.get(volid)
        copied.content_id = volume.content_id
        self._store.set_used(volid, max(copied.used, min(volume.used, volume.size)))
        return volid

    def _source(self, source: str) -> tuple[SimVolume, str | None]:
        """The volume to import, or a file of the host and its path."""
        if not source.startswith("/"):
            volume = self._store.find(source)
            if volume is None and self._store.parse(source).kind == "images":
                raise die(f"cannot import from '{source}' - could not get size of {source}")
            if volume is None:
                raise die(f"failed to stat '{self._store.path(source)}'")
            self._check_source(source)
            return volume, None
        known = _volume_at(self._call, source)
        if known is not None:
            return self._store.get(known), source
        row = self._call.region.files.get(source)
        if row is None:
            raise die(f"failed to stat '{source}'")
        size = int(row.get("virtual_size") or row.get("size") or 0)
        form = "qcow2" if source.endswith(".qcow2") else "raw"
        return SimVolume(
            source, form, "import", size, int(row.get("size") or 0), content_id=source
        ), source

    def _check_source(self, source: str) -> None:
        """A disk of a VM is imported on the node of its VM, a cloud-init drive not at all."""
        parsed = self._store.parse(source)
        if parsed.kind != "images":
            return
        failure = f"cannot import from '{source}' - "
        if re.search(r"[/:]vm-\d+-cloudinit(\.|$)", source):
            raise die(f"{failure}cannot import from cloudinit disk")
        owner = self._call.region.guests.get(parsed.vmid or 0)
        if owner is not None and owner.node != self._call.node:
            raise die(f"{failure}owner VM {parsed.vmid} not on local node")

    def _host_file(self, drive: Drive) -> Drive:
        """A file or device of the host."""
        known = _volume_at(self._call, drive.file) or self._call.region.files.get(drive.file)
        if known is None:
            raise die(f"volume {drive.file} does not exist")
        return drive

    def _existing(self, drive: Drive) -> Drive:
        access.check_volume(self._call, self._store, drive.file, vmid=self._target.vmid)
        if drive.storage is None:
            return self._host_file(drive)
        kind = self._store.parse(drive.file)
        if kind.kind not in ("images", "iso"):
            raise die(
                f"cannot use volume {drive.file} - content type needs to be 'images' or 'iso'"
            )
        given = drive.options.get("format")
        if given and given != kind.format:
            raise die(
                f"drive '{drive.slot}' - volume '{drive.file}' - 'format={given}' option different"
                f" from storage format '{kind.format}'"
            )
        if drive.is_cloudinit:
            self._refuse_second(drive)
        volume = self._store.find(drive.file)
        if volume is None:
            raise die(f"volume '{drive.file}' does not exist")
        if not volume.size:
            raise die(f"volume {drive.file} does not exist")
        return drive.with_size(volume.size)


def efi_size(drive: Drive) -> int:
    """The size of the variables of the firmware."""
    return EFI_SIZE if drive.options.get("efitype") == "4m" else EFI_SMALL


def target_format(store: VolumeStore, storage: str, form: str) -> str:
    """The format of a copy: that of the source if the target storage supports it."""
    if not names.has_path(store.get_storage(storage)):
        return "raw"
    if form in ("raw", "qcow2", "vmdk"):
        return form
    return names.default_format(store.get_storage(storage))


async def clone_disk(
    call: PveCall,
    ctx: WorkerContext,
    drive: Drive,
    target: VolumeTarget,
    *,
    full: bool,
    storage: str | None = None,
    form: str | None = None,
    of: SimSnapshot | None = None,
) -> Drive:
    """Copy or link-clone the volume of a drive, or a snapshot of it."""
    store = files.volume_store(call)
    label = "full" if full else "linked"
    ctx.log(f"create {label} clone of drive {drive.slot} ({drive.file})")
    if not full:
        volid = store.clone(drive.file, target.vmid, ctx, of.name if of else None)
        _restore_snapshot_state(store, volid, drive.file, of)
        return drive.with_file(volid, store.get(volid).size)
    name = storage or drive.storage or ""
    source = store.get(drive.file)
    kept = form if form and names.has_path(store.get_storage(name)) else None
    form = kept or target_format(store, name, source.format)
    if drive.is_cloudinit:
        file = f"vm-{target.vmid}-cloudinit"
        file += f".{form}" if names.has_path(store.get_storage(name)) else ""
        volid = store.alloc(name, target.vmid, form, CLOUDINIT_SIZE, file)
    else:
        was = of.disks.get(drive.file) if of else None
        size = int(was["size"]) if was else source.size
        size = efi_size(drive) if drive.slot == "efidisk0" else size
        volid = store.alloc(name, target.vmid, form, size)
        await _copy(call, ctx, drive.file, volid)
        _restore_snapshot_state(store, volid, drive.file, of)
    if drive.slot.startswith("unused"):
        return drive.with_file(volid)
    return drive.with_file(volid, store.get(volid).size)


def _restore_snapshot_state(
    store: VolumeStore, volid: str, source: str, of: SimSnapshot | None
) -> None:
    """Give a clone of a snapshot the size and content of the snapshot."""
    was = of.disks.get(source) if of else None
    if was is not None:
        volume = store.get(volid)
        volume.size, volume.content_id = int(was["size"]), str(was["content_id"])


async def _copy(call: PveCall, ctx: WorkerContext, source: str, target: str) -> None:
    store, done = files.volume_store(call), False
    try:
        await store.copy(ctx, source, target, int(call.get("bwlimit") or 0))
        done = True
    finally:
        if not done and call.region.hosts[call.node].online:
            store.free(target)


def check_images(call: PveCall, storage: str, node: str | None = None) -> None:
    """Check that a storage can hold disk images on a node."""
    found = files.volume_store(call).get_enabled(storage, node)
    if "images" not in found.content:
        raise bad_params(storage=f"storage '{storage}' does not support vm images")
