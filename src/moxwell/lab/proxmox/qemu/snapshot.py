"""
Snapshots of VMs and containers: sections of the configuration, and a snapshot on every volume.

Create, delete and rollback are workers; almost all errors fail the task.
"""

from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import identity, start, vmstate
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf, Row, SimGuest, SimSnapshot
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes import names, snapshots
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore

_NOT_KEPT = frozenset(
    words("snapstate snaptime vmstate lock digest description runningmachine runningcpu")
)
_RUNNING = ("runningmachine", "runningcpu", "running-nets-host-mtu")

_TASKS = {"qemu": "qm", "lxc": "vz"}


def get(guest: SimGuest, name: str) -> SimSnapshot:
    found = guest.snapshots.get(name)
    if found is None:
        raise die(f"snapshot '{name}' does not exist")
    return found


def section(guest: SimGuest, name: str) -> Row:
    """A snapshot section as the API returns it."""
    snap = get(guest, name)
    row: Row = dict(snap.conf) | {"snaptime": snap.snaptime}
    for key, value in (
        ("description", snap.description),
        ("parent", snap.parent),
        ("vmstate", snap.vmstate),
        ("snapstate", snap.state),
    ):
        if value:
            row[key] = value
    return row


def list_snapshots(call: PveCall, kind: str = "qemu") -> list[Row]:
    """GET snapshot."""
    guest = call.get_guest(call.params["vmid"], kind)
    rows = [_row(snap) for snap in guest.snapshots.values()]
    current: Row = {
        "name": "current",
        "digest": files.digest(guest),
        "running": int(guest.running),
        "description": "You are here!",
    }
    if guest.parent:
        current["parent"] = guest.parent
    return [*rows, current]


def _row(snap: SimSnapshot) -> Row:
    row: Row = {
        "name": snap.name,
        "snaptime": snap.snaptime,
        "vmstate": int(bool(snap.vmstate)),
        "description": snap.description or "",
    }
    if snap.parent:
        row["parent"] = snap.parent
    if snap.state:
        row["snapstate"] = snap.state
    return row


def index(call: PveCall) -> list[Row]:
    return [{"cmd": "rollback"}, {"cmd": "config"}]


def get_config(call: PveCall, kind: str = "qemu") -> Row:
    """GET snapshot/NAME/config."""
    return section(call.get_guest(call.params["vmid"], kind), call.params["snapname"])


async def put_config(call: PveCall, kind: str = "qemu") -> None:
    """PUT snapshot/NAME/config: only the description."""
    vmid, text = call.params["vmid"], call.get("description")
    if text is None:
        return
    async with call.hold(kind, vmid):
        guest = call.get_guest(vmid, kind)
        files.check_lock(guest)
        get(guest, call.params["snapname"]).description = text


def volumes_of(conf: Conf) -> list[tuple[str, str]]:
    """(key, volume id) of everything that a snapshot includes: no CD-ROMs, no unmanaged files."""
    found = []
    for key, volid in files.named_volumes(conf):
        if ":" in volid and not volid.startswith("/") and "media=cdrom" not in str(conf[key]):
            found.append((key, volid))
    return found


def snapshot_options(conf: Conf) -> Conf:
    """The options that a snapshot includes."""
    return {k: v for k, v in conf.items() if k not in _NOT_KEPT and not k.startswith("unused")}


# ---------------------------------------------------------------------- create


def create(call: PveCall, kind: str = "qemu") -> str:
    """POST snapshot."""
    name, vmid = call.params["snapname"], call.params["vmid"]
    reserved = ("current", "vzdump") if kind == "lxc" else ("current",)
    if name in reserved or (name.lower() == "pending" and kind == "qemu"):
        raise die(f"unable to use snapshot name '{name}' (reserved name)")
    if kind == "qemu":
        vmstate.check_blockers(call.get_guest(vmid).conf, state=bool(call.get("vmstate")))

    async def worker(ctx: WorkerContext) -> None:
        async with call.hold(kind, vmid):
            await _create(call, call.get_guest(vmid, kind), name, ctx)

    return call.spawn(_TASKS[kind] + "snapshot", vmid, worker)


async def _create(call: PveCall, guest: SimGuest, name: str, ctx: WorkerContext) -> None:
    if guest.template:
        raise die("you can't take a snapshot if it's a template")
    files.check_lock(guest)
    if guest.kind == "qemu":
        vmstate.check_blockers(guest.conf, state=bool(call.get("vmstate")))
    if name in guest.snapshots:
        raise die(f"snapshot name '{name}' already used")
    store = files.volume_store(call)
    volumes = volumes_of(guest.conf)
    if not all(store.feature("snapshot", volid) for _, volid in volumes):
        raise die("snapshot feature is not available")
    guest.conf["lock"] = "snapshot"
    state, running = None, {}
    try:
        if call.get("vmstate") and guest.running:
            storage = vmstate.choose_storage(call, guest)
            state = await vmstate.save(call, guest, ctx, storage, name)
            running = vmstate.running_options(call, guest)
        disks = _snapshot_volumes(store, volumes, name, ctx)
    finally:
        guest.conf.pop("lock", None)
    guest.snapshots[name] = SimSnapshot(
        name,
        snapshot_options(guest.conf) | running,
        guest.parent,
        int(call.now()),
        call.get("description") or None,
        state,
        disks=disks,
    )
    guest.parent = name
    files.write(call.runtime, guest)


def _snapshot_volumes(
    store: VolumeStore, volumes: list[tuple[str, str]], name: str, ctx: WorkerContext
) -> Row:
    """Take the snapshots, all or none; returns the state of the volumes."""
    found: Row = {}
    try:
        for key, volid in volumes:
            ctx.log(f"snapshotting 'drive-{key}' ({volid})")
            snapshots.add(store, volid, name)
            size = store.get(volid).size
            found[volid] = {"size": size, "content_id": store.content_id(volid)}
    except PveException:
        for volid in found:
            snapshots.remove(store, volid, name)
        raise
    return found


# ---------------------------------------------------------------------- delete


def delete(call: PveCall, kind: str = "qemu") -> str:
    """DELETE snapshot/NAME."""
    name, vmid = call.params["snapname"], call.params["vmid"]

    async def worker(ctx: WorkerContext) -> None:
        async with call.hold(kind, vmid):
            guest = call.get_guest(vmid, kind)
            snap = get(guest, name)
            files.check_lock(guest)
            if guest.template:
                guest.conf["lock"] = "snapshot-delete"  # PVE sets it before it checks
                raise die("you can't delete a snapshot if vm is a template")
            _delete(call, guest, snap, force=bool(call.get("force")))

    return call.spawn(_TASKS[kind] + "delsnapshot", vmid, worker)


def _delete(call: PveCall, guest: SimGuest, snap: SimSnapshot, *, force: bool) -> None:
    """Delete a snapshot; without ``force`` a failure leaves the lock and what is not yet done."""
    store = files.volume_store(call)
    guest.conf["lock"], snap.state = "snapshot-delete", "delete"
    if snap.vmstate and store.find(snap.vmstate) is not None:
        store.free(snap.vmstate)
    snap.vmstate = None
    released = []
    for key, volid in volumes_of(snap.conf):
        if _release(store, volid, snap.name, force=force):
            released.append(volid)
        if not force:
            del snap.conf[key]
    del guest.conf["lock"]
    del guest.snapshots[snap.name]
    for other in guest.snapshots.values():
        if other.parent == snap.name:
            other.parent = snap.parent
    if guest.parent == snap.name:
        guest.parent = snap.parent
    for volid in released:
        files.add_unused(guest.conf, volid)
    files.write(call.runtime, guest)


def _release(store: VolumeStore, volid: str, name: str, *, force: bool) -> bool:
    """Delete the snapshot of a volume; with ``force`` a failure is no error."""
    volume = store.find(volid)
    try:
        storage = store.get_storage(volid.partition(":")[0])
        if volume is None and names.has_path(storage):
            command = f"/usr/bin/qemu-img snapshot -d {name} {store.path(volid)}"
            raise die(f"command '{command}' failed: exit code 1")
        store.release(volid, name)
    except PveException:
        if not force:
            raise
        return False
    snapshots.remove(store, volid, name)
    return True


# ---------------------------------------------------------------------- rollback


def rollback(call: PveCall, kind: str = "qemu") -> str:
    """POST snapshot/NAME/rollback."""
    name, vmid = call.params["snapname"], call.params["vmid"]
    if call.get("start") and call.major >= 9:
        call.check(f"/vms/{vmid}", "VM.PowerMgmt")

    async def worker(ctx: WorkerContext) -> None:
        async with call.hold(kind, vmid):
            guest = call.get_guest(vmid, kind)
            await _rollback(call, guest, name)
            if (call.get("start") or guest.snapshots[name].vmstate) and not guest.running:
                await start.start(call, guest, ctx)

    return call.spawn(_TASKS[kind] + "rollback", vmid, worker)


async def _rollback(call: PveCall, guest: SimGuest, name: str) -> None:
    if guest.template:
        raise die("you can't rollback if vm is a template")
    snap = get(guest, name)
    _check_order(call, snap)
    if snap.state:
        raise die(f"unable to rollback to incomplete snapshot (snapstate = {snap.state})")
    files.check_lock(guest)
    await start.mark_stopped(call.runtime, guest)
    store = files.volume_store(call)
    wanted = {volid for _, volid in volumes_of(snap.conf)}
    lost = [volid for _, volid in volumes_of(guest.conf) if volid not in wanted]
    keep = {k: v for k, v in guest.conf.items() if k.startswith("unused") or k == "description"}
    for volid in lost:
        files.add_unused(keep, volid)
    _free_cloudinit(store, guest, snap)
    guest.special.clear()
    guest.conf = keep | {k: v for k, v in snap.conf.items() if k not in _RUNNING}
    guest.pending.clear()
    guest.deletes.clear()
    if guest.conf.get("vmgenid"):
        guest.conf["vmgenid"] = identity.new_uuid(call.runtime)
    guest.parent = name
    for volid, was in snap.disks.items():
        volume = store.find(volid)
        if volume is not None:
            volume.size, volume.content_id = int(was["size"]), str(was["content_id"])
    files.write(call.runtime, guest)


def _free_cloudinit(store: VolumeStore, guest: SimGuest, snap: SimSnapshot) -> None:
    """Free the cloud-init drive that the snapshot does not have."""
    drive = files.find_cloudinit([guest.conf])
    kept = files.find_cloudinit([snap.conf])
    lost = drive is not None and (kept is None or kept.file != drive.file)
    if drive is not None and lost and store.find(drive.file) is not None:
        store.free(drive.file)


def _check_order(call: PveCall, snap: SimSnapshot) -> None:
    """ZFS and volume chains can roll back only to the newest snapshot."""
    store = files.volume_store(call)
    for _, volid in volumes_of(snap.conf):
        volume = store.find(volid)
        storage = store.get_storage(volid.partition(":")[0])
        newest = storage.type == "zfspool" or names.has_volume_chain(storage)
        if volume is not None and newest and volume.snapshots[-1:] != [snap.name]:
            shown = volid if storage.type == "zfspool" else volume.name
            raise die(f"can't rollback, '{snap.name}' is not most recent snapshot on '{shown}'")
