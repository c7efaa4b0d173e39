"""PUT resize and POST move_disk: to another storage or another VM."""

import re

from moxwell.lab.proxmox.config_schema.drives import Drive, find_drive, parse_size, write_drive
from moxwell.lab.proxmox.errors import PveException, bad_params, die, param_error
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import disks, update
from moxwell.lab.proxmox.qemu.template import make_bases
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import SimGuest
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes import names

_MODIFIED = "detected modified configuration - file changed by other user? Try again."

# ---------------------------------------------------------------------- resize


def resize(call: PveCall) -> str:
    """PUT resize; errors other than invalid parameters fail the task."""
    vmid = call.params["vmid"]
    if call.get("skiplock") and not call.is_root:
        raise bad_params(skiplock="Only root may use this option.")

    async def worker(ctx: WorkerContext) -> None:
        async with call.hold("qemu", vmid):
            _resize(call, call.get_guest(vmid), ctx)

    return call.spawn("resize", vmid, worker)


def _resize(call: PveCall, guest: SimGuest, ctx: WorkerContext) -> None:
    files.check_digest(guest, call.get("digest"))
    if not call.get("skiplock"):
        files.check_lock(guest)
    slot, store = call.params["disk"], files.volume_store(call)
    drive = find_drive(slot, guest.conf[slot]) if slot in guest.conf else None
    if drive is None:
        raise die(f"disk '{slot}' does not exist")
    form = store.parse(drive.file).format
    if drive.is_cdrom_media:
        raise die("you can't resize a cdrom")
    call.check(f"/storage/{drive.storage}", "Datastore.AllocateSpace")
    volume = store.get(drive.file)
    size = new_size(str(call.params["size"]), volume.size)
    if size < volume.size:
        raise die("shrinking disks is not supported")
    if size == volume.size:
        return
    if form not in ("raw", "qcow2"):
        raise die("can't resize this image format")
    if not guest.running:
        _check_writable(call, drive, size)
    store.resize(drive.file, size)
    if not guest.running:
        ctx.log("Image resized.")
    guest.conf[slot] = write_drive(drive.with_size(size))
    if guest.running and slot in guest.live:
        guest.live[slot] = guest.conf[slot]
    files.write(call.runtime, guest)


def _check_writable(call: PveCall, drive: Drive, size: int) -> None:
    """Files of base images are immutable."""
    store = files.volume_store(call)
    parsed = store.parse(drive.file)
    if not parsed.is_base or not names.has_path(store.get_storage(drive.storage or "")):
        return
    kind = "metadata" if parsed.format == "qcow2" else "off"
    option = f"'--preallocation={kind}' " if call.major >= 9 else ""
    command = f"/usr/bin/qemu-img resize {option}-f {parsed.format} {store.path(drive.file)} {size}"
    raise die(f"command '{command}' failed: exit code 1")


def new_size(text: str, old: int) -> int:
    """The new size in bytes for ``+1G`` or ``3G``."""
    size = parse_size(text.removeprefix("+")) or 0
    return old + size if text.startswith("+") else size


# ---------------------------------------------------------------------- move


def move_disk(call: PveCall) -> str:
    """POST move_disk."""
    storage, other = call.get("storage"), call.get("target-vmid")
    if other and storage:
        text = "either set 'storage' or 'target-vmid', but not both"
        raise param_error({"target-vmid": text, "storage": text})
    if other:
        return _to_guest(call, int(other))
    if storage:
        return _to_storage(call, storage)
    text = "both 'storage' and 'target-vmid' missing, either needs to be set"
    raise param_error({"target-vmid": text, "storage": text})


def _movable(call: PveCall, storage: str) -> tuple[SimGuest, Drive]:
    guest, slot = call.get_guest(call.params["vmid"]), call.params["disk"]
    files.check_lock(guest)
    if call.get("digest") and call.get("digest") != files.digest(guest):
        raise die(_MODIFIED)
    if slot not in guest.conf:
        raise die(f"disk '{slot}' does not exist")
    drive = find_drive(slot, guest.conf[slot])
    if drive is None or not drive.file:
        raise die(f"disk '{slot}' has no associated volume")
    if drive.is_cdrom:
        raise die("you can't move a cdrom")
    form = call.get("format")
    if drive.storage == storage and (not form or _format(call, drive) in (None, form)):
        raise die("you can't move to the same storage with same format")
    disks.check_images(call, storage)
    if call.get("delete") and _in_snapshot(guest, drive.file):
        raise die("you can't move a disk with snapshots and delete the source")
    return guest, drive


def _format(call: PveCall, drive: Drive) -> str | None:
    """The format of a volume; PVE 8 knows only that of files."""
    if call.major >= 9:
        return files.volume_store(call).parse(drive.file).format
    match = re.search(r"\.(raw|qcow2|vmdk)$", drive.file)
    return match[1] if match else None


def _in_snapshot(guest: SimGuest, volid: str) -> bool:
    return any(d.file == volid for s in guest.snapshots.values() for d in files.drives(s.conf))


def _to_storage(call: PveCall, storage: str) -> str:
    call.check(f"/storage/{storage}", "Datastore.AllocateSpace")
    _movable(call, storage)
    vmid = call.params["vmid"]

    async def worker(ctx: WorkerContext) -> None:
        async with call.hold("qemu", vmid):
            guest, drive = _movable(call, storage)
            await _move(call, guest, drive, storage, ctx)

    return call.spawn("qmmove", vmid, worker)


async def _move(
    call: PveCall, guest: SimGuest, drive: Drive, storage: str, ctx: WorkerContext
) -> None:
    store, target = files.volume_store(call), disks.VolumeTarget(guest.vmid)
    if guest.running and drive.slot == "tpmstate0":
        raise die("storage migration failed: cannot move TPM state while VM is running")
    try:
        new = await disks.clone_disk(
            call, ctx, drive, target, full=True, storage=storage, form=call.get("format")
        )
    except PveException as problem:
        raise die(f"storage migration failed: {problem.message}") from problem
    guest.conf[drive.slot] = write_drive(new)
    if guest.running:
        guest.live[drive.slot] = guest.conf[drive.slot]
    if not call.get("delete"):
        files.add_unused(guest.conf, drive.file)
    if guest.template:
        await make_bases(call, guest, ctx, only=drive.slot)
    files.write(call.runtime, guest)
    if call.get("delete"):
        try:
            store.free(drive.file, ctx)
        except PveException as problem:
            ctx.log(problem.message)


def _to_guest(call: PveCall, other: int) -> str:
    vmid, slot = call.params["vmid"], call.params["disk"]
    target_slot = call.get("target-disk") or slot
    if not call.is_root:
        call.check_vm(other, "VM.Config.Disk")
    if other == vmid:
        text = "must be different than source VMID to reassign disk"
        raise param_error({"target-vmid": text})
    _, _, drive = _reassignable(call, other, target_slot)
    call.check(f"/storage/{drive.storage}", "Datastore.AllocateSpace")

    async def worker(ctx: WorkerContext) -> None:
        async with call.hold("qemu", vmid), call.hold("qemu", other):
            source, target, found = _reassignable(call, other, target_slot)
            await _reassign(call, source, target, found, target_slot, ctx)

    return call.spawn("qmmove", f"{vmid}-{slot}>{other}-{target_slot}", worker)


def _both(call: PveCall, other: int) -> tuple[SimGuest, SimGuest]:
    vmid = call.params["vmid"]
    known = call.region.guests
    if vmid not in known:
        raise die(f"could not find VM {vmid}")
    if other not in known:
        raise die(f"could not find target VM {other}")
    if known[vmid].node != known[other].node:
        nodes = f"({known[vmid].node} != {known[other].node})"
        raise die(f"Both VMs need to be on the same node {nodes}")
    source, target = call.get_guest(vmid), call.get_guest(other)
    files.check_lock(source)
    files.check_lock(target)
    if source.template or target.template:
        raise die("Can't move disks from or to template VMs")
    for guest, given in ((source, "digest"), (target, "target-digest")):
        if call.get(given) and call.get(given) != files.digest(guest):
            raise die(f"VM {guest.vmid}: {_MODIFIED}")
    return source, target


def _reassignable(call: PveCall, other: int, target_slot: str) -> tuple[SimGuest, SimGuest, Drive]:
    source, target = _both(call, other)
    slot = call.params["disk"]
    if slot not in source.conf:
        raise die(f"Disk '{slot}' for VM '{source.vmid}' does not exist")
    if target_slot in target.conf:
        raise die(f"Target disk key '{target_slot}' is already in use for VM '{other}'")
    drive = find_drive(slot, source.conf[slot])
    if drive is None or not drive.file:
        raise die(f"disk '{slot}' has no associated volume")
    if drive.is_cdrom:
        raise die("CD drive contents can't be moved to another VM")
    if drive.storage is None:
        raise die(f"Volume '{drive.file}' not managed by PVE")
    if _in_snapshot(source, drive.file):
        raise die("Can't move disk used by a snapshot to another VM")
    if not files.volume_store(call).feature("rename", drive.file):
        raise die("Storage does not support moving of this disk to another VM")
    if source.running and not slot.startswith("unused"):
        raise die("Cannot move disk to another VM while the source VM is running - detach first")
    text = drive.file if target_slot.startswith("unused") else str(source.conf[slot])
    parsed = find_drive(target_slot, text)
    if parsed is None:
        raise die("failed to parse source disk for target disk format - ")
    return source, target, parsed


async def _reassign(
    call: PveCall,
    source: SimGuest,
    target: SimGuest,
    drive: Drive,
    target_slot: str,
    ctx: WorkerContext,
) -> None:
    slot = call.params["disk"]
    ctx.log(f"moving disk '{slot}' from VM '{source.vmid}' to '{target.vmid}'")
    volid = files.volume_store(call).rename(drive.file, target.vmid)
    order = files.boot_order(source.conf)
    if slot in order:
        ctx.log(f"removing disk '{slot}' from boot order config")
        source.conf["boot"] = files.boot_text([name for name in order if name != slot])
    del source.conf[slot]
    ctx.log(f"removing disk '{slot}' from VM '{source.vmid}' config")
    files.write(call.runtime, source)
    moved = write_drive(Drive(target_slot, volid, drive.options))
    if target_slot.startswith("unused"):
        target.conf[target_slot] = volid
        files.write(call.runtime, target)
        return
    change = update.ConfigUpdate(call, {"vmid": target.vmid, target_slot: moved})
    change.check()
    await change.perform(ctx)
